package snapshot

import (
	"context"
	"io/fs"
	"iter"
	"time"
)

// An optional power of a backend is a small interface. The engine finds it with a type assertion,
// and works without it.

// A Cloner is a backend that captures a tree and forks the snapshot in one step, which is cheaper than
// [Backend.Capture] and [Backend.Fork] (btrfs: one transaction commit instead of two).
type Cloner interface {
	// Clone captures tree as the snapshot id and forks that as fork, like [Backend.Capture] and then
	// [Backend.Fork]. It has the same errors, and leaves no more after an error. The View of the returned
	// Snapshot may be empty; [Backend.Lookup] returns it.
	Clone(ctx context.Context, tree Tree, id ID, fork ForkID) (Snapshot, Fork, error)
}

// A NameHider is a [Served] tree on a live base that can hide names of the real tree from the sandbox, even
// names that do not exist there yet. Hidden are, for example, files with secrets.
type NameHider interface {
	// Hiding returns the same tree without the names at paths, which are relative to the tree. A path that ends with a
	// slash stands for all names in that directory, but for those whose path is in the list with a slash before it. A
	// file that the fork itself has made at such a path is shown. While the returned Served is mounted, other mounts
	// of the fork hide the names as well.
	//
	// A path that begins with two slashes is not hidden. Something is mounted at it, so lookups of it must always find
	// the inode that the first one found, even after the real file was replaced: otherwise the kernel removes the
	// mount.
	Hiding(paths []string) Served
}

// An AtomicCloner is a backend that clones several trees as they are at one instant: of two consecutive
// writes to the trees, no set of bases has the second without the first. (ZFS takes the snapshots of one pool
// in one transaction.)
type AtomicCloner interface {
	// Instant returns a key for the place where the backend stores tree, such as its filesystem.
	// CloneAtomically can clone trees with equal keys at one instant.
	Instant(tree Tree) (string, error)
	// CloneAtomically does [Cloner.Clone] for all of trees at one instant; bases are in the order of trees.
	// After an error no base and no fork exists. Errors: those of Clone, and errs.ErrNotSupported (these
	// trees cannot be cloned at one instant).
	CloneAtomically(ctx context.Context, trees []Cloning) (bases []Snapshot, err error)
}

// A Cloning names a tree, and the ids of the snapshot and the fork to make of it, for
// [AtomicCloner.CloneAtomically].
type Cloning struct {
	Tree Tree
	ID   ID
	Fork ForkID
}

// A ChangeLister is a backend that lists the paths at which two states of a tree may differ, and measures the
// changes of a fork, both in time proportional to the changes.
type ChangeLister interface {
	// ListChanges yields the paths at which the fork may differ from the snapshot base. The paths are a
	// superset of the differences, in no order, and miss none; the caller compares each path. A backend that
	// keeps the hard links of a changed file together may leave out those of them that a bounded search does
	// not find.
	//
	// Errors, yielded once as the last pair: errs.ErrNotFound, errs.ErrNotSupported (this process or kernel
	// cannot list changes; the caller then walks both trees), errs.ErrCorrupt.
	ListChanges(ctx context.Context, base ID, fork ForkID) iter.Seq2[Candidate, error]
	// ListChangesBetween yields the paths at which the snapshots a and b may differ, as ListChanges does for
	// a snapshot and a fork, with the same errors. It returns errs.ErrNotSupported also if the two snapshots
	// have no common origin.
	ListChangesBetween(ctx context.Context, a, b ID) iter.Seq2[Candidate, error]
	// Usage returns how many bytes of disk space the fork's data takes that its base does not hold. Errors:
	// errs.ErrNotFound, errs.ErrNotSupported (this process may not read the figure), errs.ErrInterrupted.
	Usage(ctx context.Context, fork ForkID) (Bytes, error)
}

// A SealComparer is a backend that can often tell without a comparison of files whether a fork has changed since
// it was sealed. [ChangeLister.ListChanges] may list paths that have not changed, and on some backends waits for the
// disk.
type SealComparer interface {
	// ChangedSinceSeal reports whether the fork differs from the snapshot base, into which it was sealed, also
	// while processes write to the fork. known is false if the backend cannot tell; the caller then compares the
	// two states. A file that was written with the content and times that it had is no difference. A file that was
	// only opened for writing may be one.
	//
	// Cost: in proportion to the changes in the fork since its last seal with [Idle], and not to the size of the tree.
	ChangedSinceSeal(ctx context.Context, base ID, fork ForkID) (changed, known bool)
}

// A DriftDetector is a backend that lists the paths at which the real tree may have changed since a snapshot
// of it, in time proportional to the changes.
type DriftDetector interface {
	// DetectDrift yields the paths at which the present state of the real tree may differ from the snapshot
	// id of it. Like [ChangeLister.ListChanges], it yields a superset, and misses no change made before the
	// call.
	//
	// Errors, yielded once as the last pair: errs.ErrNotFound, errs.ErrNotSupported (this process cannot list
	// changes, or another tree is at the path of the captured one; the caller then walks both),
	// errs.ErrCorrupt.
	DetectDrift(ctx context.Context, id ID) iter.Seq2[Candidate, error]
}

// A Candidate is a path at which two states of a tree may differ, as a backend lists it. The caller compares
// the states there.
type Candidate struct {
	// Path is relative to the root of the tree, with slashes; the root itself is ".". Any byte but
	// NUL may occur.
	Path string
	// Tree is set if the whole subtree at Path may differ. Otherwise only the inode at Path
	// may, and for a directory the set of its names.
	Tree bool
	// Named is set if each name in the directory Path that may differ is yielded as a
	// Candidate of its own, so that the caller need not list the directory.
	Named bool
	// RenamedFrom is set for a renamed directory, which has Tree set: it shows the entries that the
	// older state has in the directory RenamedFrom, except for those with Candidates of their own
	// below Path or below RenamedFrom. "" for any other path. A backend may always leave it out.
	RenamedFrom string
	// LostFrom is set for a renamed directory of a live base that reads its entries from this path of
	// the real tree, relative to the root of the tree, where no directory is any more. Only what was
	// written to the directory itself is left of it. "" for any other path.
	LostFrom string
}

// An OriginalStore is a backend that preserves the original content of each file that a fork changes, for
// forks whose base is the real tree itself (a live base). The original is then known even after the real file
// has changed too.
type OriginalStore interface {
	// Originals yields the files of the real tree whose content the fork has changed since base, each as it
	// was just before that change, in no order. A file that is missing was not changed, or its original is
	// unknown. Cost: in proportion to the changes in the fork.
	//
	// Errors, yielded once as the last pair: errs.ErrNotFound, errs.ErrCorrupt, errs.ErrNotSupported (base
	// and fork have no common origin).
	Originals(ctx context.Context, base ID, fork ForkID) iter.Seq2[Original, error]
}

// A Detacher is a backend with forks on a live base in which a renamed entry still reads the real tree under
// the old name: by an overlayfs redirect, or by a rename without a copy up. Detach copies such entries up, so
// that the host may then change the old name.
type Detacher interface {
	// Borrowed lists the entries that a fork shows from another path of the real tree. An entry
	// inside a listed directory is listed only if the directory does not account for it. Cost: in
	// proportion to the changes in the fork since its base. Errors: errs.ErrNotFound, errs.ErrCorrupt.
	Borrowed(ctx context.Context, fork ForkID) ([]Borrowed, error)
	// Detach copies the entries what, which [Detacher.Borrowed] listed, up into the fork, so that they no
	// longer depend on the real tree. The fork is idle. It shows the same content before and after, and also
	// after an error or a kill; a repeated call completes the work.
	//
	// Detach may call mounted, which mounts the fork and calls do with a descriptor of its root; the fork may
	// be written to until do returns. Cost: a copy of each file, unless the filesystem can share blocks.
	// Errors: errs.ErrNotFound, errs.ErrNoSpace, errs.ErrBusy, errs.ErrDrifted (the real tree no longer has
	// the entry), errs.ErrInterrupted.
	Detach(ctx context.Context, fork ForkID, what []Borrowed, mounted func(do func(root int) error) error) error
}

// A Borrowed is a file or directory that a fork shows from another path of the real tree, since the sandbox
// renamed it and nothing was copied. Paths have the form of [Candidate.Path].
type Borrowed struct {
	// Path is the path in the fork, From the path in the real tree.
	Path, From string
	// Tree is set if Path shows the whole directory From, except for the fork's own changes.
	Tree bool
}

// An Original is a regular file of the real tree as it was when a fork first changed its content, preserved
// by an [OriginalStore].
type Original struct {
	Path string // in the form of [Candidate.Path]
	// OnlyRead means that the fork read the version with Ino and CTime, and that the file was another one when the
	// fork changed it. The other fields are not set. Ino 0: which version it read is not known.
	OnlyRead bool
	Ino      uint64
	Mode     fs.FileMode
	UID, GID uint32
	Size     int64
	// MTime and CTime are the file's times at that moment. CTime shows whether the real file had
	// changed between the base and the fork's first change.
	MTime, CTime time.Time
	Xattrs       map[string]string
	// Content is a file with the original bytes, which exists as long as the fork does. "": the
	// bytes were not preserved.
	Content string
}

// An Estimator is a backend that copies the whole tree for each capture, and again for each fork. It can
// estimate the size of a copy beforehand, to warn the user.
type Estimator interface {
	// Estimate counts the files and bytes that one copy of tree would take. Cost: one lstat for each file.
	// Errors: errs.ErrNotFound, errs.ErrInterrupted.
	Estimate(ctx context.Context, tree Tree) (CopySize, error)
}

// A CopySize is how many files and bytes one copy of a tree would have. An [Estimator] counts them before a
// backend copies the tree.
type CopySize struct {
	// Files is the number of names, directories included.
	Files int
	// Bytes is the disk space of the copy.
	Bytes Bytes
	// Room is the free space on the disk for copies, or -1 if copies share blocks, so that a copy may
	// take less than Bytes.
	Room Bytes
}

// A Preforker is a backend that makes forks of a snapshot in advance, so that a later Fork or Clone of an
// unchanged tree is only a rename.
type Preforker interface {
	// Prefork makes forks of the snapshot from in advance, until n unused ones exist. They are removed with
	// the snapshot. Two calls may run at once, and a call may be killed. Cost: that of each missing fork.
	// Errors: errs.ErrNotFound, errs.ErrNoSpace, errs.ErrInterrupted; the forks made before an error stay.
	Prefork(ctx context.Context, from ID, n int) error
}

// A Syncer is a backend with forks whose writes do not reach the disk while processes use them (overlayfs
// mounted volatile). The engine must sync such a fork after its last process has ended.
type Syncer interface {
	// Sync writes the content of the fork to stable storage and makes the fork reachable again. Repeatable.
	// After a crash of the machine, an unsynced fork is reported as errs.ErrCorrupt. Cost: writing all
	// unsaved data of the filesystem. Errors: errs.ErrNotFound, errs.ErrCorrupt, errs.ErrNoSpace; the fork is
	// then unchanged.
	Sync(ctx context.Context, fork ForkID) error
}

// A SubtreeViewer is a backend that can show a single directory of a tree. This is needed when a filesystem
// was mounted in the real tree later: the kernel then refuses an ordinary user an overlay of the whole tree,
// but not of subdirectories without mounts.
type SubtreeViewer interface {
	// ViewSubtree returns a view of only the directory dir, a clean path inside the tree's root, from a view
	// v of the whole tree.
	//
	// With write, a change in the returned view is a change in the fork: the fork's upper gets the
	// directories down to dir, as a copy up would make them, and nobody may have the fork mounted. Without
	// write, the returned view is read-only, and nothing is created. Repeatable; after an error v is as it
	// was. Cost: some look-ups for each layer. Errors: errs.ErrNotFound (no such directory),
	// errs.ErrNotSupported.
	ViewSubtree(ctx context.Context, v View, dir string, write bool) (View, error)
}

// A Returner is a backend that rolls a fork back to a snapshot, even while the fork is mounted. The fork
// keeps its id, its limit and its mounts; otherwise it is equal to a new fork of the snapshot.
type Returner interface {
	// Return rolls the fork back to the snapshot to of its tree: it replaces the fork's content by that of
	// the snapshot. The former content is lost. Atomic.
	//
	// With InUse the fork is mounted and its processes do not write meanwhile. They see the snapshot's
	// content at once, in open and mapped files too. An open file that the snapshot does not have lives on
	// without a name, or answers ESTALE if its content is no longer available.
	//
	// Errors: errs.ErrNotFound; errs.ErrNotSupported (the snapshot has another base); errs.ErrBusy,
	// errs.ErrNoSpace, errs.ErrInterrupted.
	Return(ctx context.Context, fork ForkID, to ID, use Use) error
	// Base returns the snapshot that the fork last started from: by a fork, a seal or a rollback with Return.
	// It waits for a server process that still executes a Return whose caller was killed. Errors:
	// errs.ErrNotFound, errs.ErrInterrupted.
	Base(ctx context.Context, fork ForkID) (ID, error)
}

// A TmpProvider is a backend that has storage which is no part of a tree but counts for a fork's disk limit:
// the /tmp of a sandbox.
type TmpProvider interface {
	// Scratch returns the path of a directory outside all trees, at first empty and writable by all users,
	// like /tmp. The fork shares it with all forks whose ids are equal up to the first hyphen. Its content
	// counts for the limit of the fork. The next sweep after the removal of the last of these forks deletes
	// it. Cost: that of a fork, once. Errors: errs.ErrNotFound, errs.ErrNoSpace.
	Scratch(ctx context.Context, fork ForkID) (string, error)
}

// A ServerMonitor is a backend whose forks depend on a server process that may die. It reports the death, and
// which files of a live base (the real tree itself) were read after they had changed.
type ServerMonitor interface {
	// WaitExit waits until the server process of the fork has ended, and reports whether it was killed. If
	// so, all mounts of the fork answer ENOTCONN for good, and a new mount shows all synced data. WaitExit
	// returns false if the server ended because the last mount was removed, or if ctx ended first. For a
	// mounted fork without a server it returns true at once. Cost: some system calls.
	WaitExit(ctx context.Context, fork ForkID) bool
	// Noticed lists files, by path relative to the tree, that a process read through the fork after the real
	// file had changed: its ctime was not before the fork's base. For these files the fork does not show its
	// base.
	//
	// A file is listed from its first such read until the last mount of the fork is removed. At most 500
	// files are listed. A file is missing if it was read only before it changed, or if the kernel has not
	// asked for its content since. Cost: some system calls. Errors: errs.ErrNotFound.
	Noticed(ctx context.Context, fork ForkID) ([]string, error)
}

// A Maintainer is a backend that needs regular work while processes run in one of its forks, such as to adapt
// the limit of all forks to the free space of the host's disk.
type Maintainer interface {
	// Maintain does the regular work that the backend needs for its forks that are in use. The engine calls
	// it about every ten seconds. Cost: some system calls.
	Maintain(ctx context.Context) error
}

// A Checker is a backend that can verify the data that it stores for a fork, and repair it.
type Checker interface {
	// Check lists the problems in the data of a fork, including data that it shares with others; an
	// empty list means that the data is sound. Remains of a killed process that the next user of the
	// fork would clean up are no problem. Without repair nothing is changed.
	//
	// With repair, each Problem reports whether it was mended. A repair neither overwrites nor
	// deletes data that might be wanted, nor changes data that is shared with others, and a second
	// Check does not list a mended problem again. Repeatable; after an error the fork can be checked
	// again. Cost: in proportion to all changes ever made in the fork.
	//
	// Errors: errs.ErrNotFound, errs.ErrBusy (the fork is in use), errs.ErrCorrupt (its record), errs.ErrNoSpace.
	Check(ctx context.Context, fork ForkID, repair bool) ([]Problem, error)
}

// A Problem is damage that a [Checker], a backend that can verify its data, has found in the stored data of a
// fork.
type Problem struct {
	// Where is the damaged file or directory in the backend's data.
	Where string
	// What is a sentence that describes the damage, with the affected path of the tree if there is
	// one.
	What string
	// Mended is set if Check has repaired the damage.
	Mended bool
}
