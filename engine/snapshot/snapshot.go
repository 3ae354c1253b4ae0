// Package snapshot is the contract between snapfs and its backends: the ways to copy a directory
// tree in constant time. Read this file first; everything else either implements this contract or
// relies on it.
//
// # Life cycle
//
//	          Capture                Fork
//	Tree ───────────────► snapshot ─────────► fork ──┐ written to
//	(the real one)           ▲                  │  ▲ │ by a sandbox
//	                         └────── Seal ──────┘  └─┘
//
// # Vocabulary
//
//   - tree ([Tree]): a directory tree of the real machine.
//   - snapshot ([ID], [Snapshot]): an immutable state of a tree.
//   - fork ([ForkID], [Fork]): a writable tree that began as a snapshot, its base.
//   - frozen base, live base: whether later writes to the real tree show in a snapshot; see
//     [Facts.Frozen].
//   - view ([View]): how to reach a snapshot or a fork.
//   - seal: record the present state of a fork as a new snapshot.
//   - optional power: an interface of powers.go, send.go or limit.go that a backend may implement
//     beyond [Backend].
//
// A snapshot never becomes a fork, nor a fork a snapshot. ID and ForkID are different types, so the
// compiler knows which of the two may be written.
//
// # Responsibilities
//
// A backend stores data. Names, parents, owners and states live once, in engine/catalog, which also
// chooses the ids; a backend identifies snapshots and forks by id alone.
//
// A backend makes no lasting mount. It returns a [View], and the user of the tree (isolation, diff,
// a test) mounts that view in a mount namespace of its own, which ends with its processes.
//
// # Scenarios
//
// Run a command and discard its changes:
//
//	base, _ := b.Capture(ctx, tree, "s1")
//	fork, _ := b.Fork(ctx, base.ID, "f1")   // fork.View says where to run
//	b.RemoveFork(ctx, "f1")
//	b.Remove(ctx, "s1")
//
// Name a state and return to it. A rollback is another fork:
//
//	b.Seal(ctx, "f1", "s2", Idle)            // f1 now has the base s2
//	fork, _ = b.Fork(ctx, "s2", "f2")        // the state of s2, writable
//	b.RemoveFork(ctx, "f1")
//
// Fork a sandbox that has processes, which the caller has frozen:
//
//	b.Seal(ctx, "f1", "s3", InUse)           // the view of f1 stays as it is
//	b.Fork(ctx, "s3", "f3")
//
// # Rules for every method
//
//   - Errors are of type [*errs.Error] and match one of the sentinels of package errs.
//   - A cancelled context ends a method at its next safe point, with [errs.ErrInterrupted].
//   - After an error, or after the process was killed, a method has left either nothing, or remains
//     that Remove or RemoveFork of the same id deletes. Lookup never returns a half-made snapshot.
//   - Many goroutines and many processes may call any methods at once.
package snapshot

import (
	"context"
	"time"
)

// A Tree is a directory tree of the host that can be captured, that is, of which a backend can make a
// snapshot.
type Tree struct {
	// Path is its root: absolute, clean, and without symbolic links.
	Path string
}

// ID names a snapshot within one backend: 1 to 64 characters of [a-z0-9-], beginning with a letter
// or digit. See [ValidID].
type ID string

// ForkID names a fork within one backend, by the same rules as [ID].
type ForkID string

// A Snapshot describes an immutable state of a tree that a backend stores.
type Snapshot struct {
	ID ID
	// Tree is the captured tree. For a sealed fork it is the tree of the fork's base.
	Tree Tree
	// Taken is the instant the snapshot stands for, by the clock of the filesystem that holds the
	// tree, so that it can be compared with ctimes.
	Taken time.Time
	// Frozen reports whether the snapshot is independent of later writes to the real tree. A
	// snapshot of a live lower layer is not: files that no fork has changed show the present
	// content of the real tree.
	Frozen bool
	// View says how to read the snapshot. It has no writable part.
	View View
}

// A Fork describes a writable tree that a backend stores and that began as a snapshot, its base.
type Fork struct {
	ID ForkID
	// Base is the snapshot that the fork was made from, or last sealed into.
	Base ID
	// View says how to reach the fork. It is valid until the fork is removed, or sealed as
	// [Idle].
	View View
}

// A View says how a process reaches a tree that a backend stores, without mounting it yet: through Served if
// that is set, else through Overlay if that is set, else at Path.
type View struct {
	// Path is the directory that holds the tree, if Overlay and Served are nil.
	Path string
	// Overlay is the overlay mount that shows the tree, or nil.
	Overlay *Overlay
	// Served mounts the tree, or is nil.
	Served Served
}

// A Served is a tree, such as a fork, that a process serves over FUSE because no filesystem of the kernel can
// show it. Its method mounts it.
type Served interface {
	// Mount mounts the tree in the caller's mount namespace, not yet at any path, and returns an O_PATH
	// descriptor of its root. Closing the descriptor unmounts the tree, unless the caller has attached it at
	// a path.
	//
	// A server process, this one or another, serves the tree until its last mount is removed; then the fork
	// contains all that was written. Only one process tree may write to a fork. Any number of readers may
	// mount it with readOnly.
	//
	// The caller must have the right to mount in its namespace. Cost: some microseconds for each inode that
	// was ever changed in the tree. Errors: errs.ErrNotFound, errs.ErrCorrupt, errs.ErrBusy, errs.ErrDenied,
	// errs.ErrNotSupported (no /dev/fuse, or no right to mount it).
	Mount(ctx context.Context, readOnly bool) (fd int, err error)
}

// An Overlay describes one mount of the kernel's overlayfs that shows a snapshot or a fork. A backend makes
// it, and the user of the tree mounts it.
type Overlay struct {
	// Lower lists the read-only layers, topmost first: at least one, unless Base is set.
	Lower []string
	// Base lists further lower layers, topmost first, below all of Lower. Each is a read-only tree
	// that a process serves; only all of them together show the base tree.
	Base []Served
	// Upper and Work are the writable layer and its work directory. Both are empty in the view of a
	// snapshot.
	Upper, Work string
	// UserXattr makes overlayfs store its own records in user.* instead of trusted.* attributes.
	// Kernels require it in a user namespace, and exclude redirect_dir with it
	// (Documentation/filesystems/overlayfs).
	UserXattr bool
	// Metacopy is set if a layer may hold files without their content, which is then read from a lower
	// layer. Others are mounted so that a change of metadata copies the content up, too: a file that the
	// real tree deletes afterwards would be lost (EIO).
	Metacopy bool
	// Nested is set if the last of Lower, which is the tree itself, contains the other layers,
	// because the state directory is inside the tree. The kernel refuses such a mount (ELOOP).
	// internal/mount works around this with a read-only overlay of the last layer alone.
	Nested bool
}

// Use says whether processes have files of a fork open while a method of [Backend] seals it or rolls it back.
type Use int

// The values of Use: whether processes use a fork while a backend seals it (makes a snapshot of it) or rolls
// it back.
const (
	// Idle means that no process has the fork mounted or open. Backend.Seal then may move the fork's data,
	// and takes constant time.
	Idle Use = iota
	// InUse means that processes run on the view, and the caller has frozen them. Seal leaves
	// the view in place, and may take time in proportion to the changes in the fork since its
	// base.
	InUse
)

// A Backend stores snapshots and forks of directory trees. The engine opens one by a [Driver]. The rules of
// the package comment, about errors, kills and concurrent calls, hold for every method.
type Backend interface {
	// Facts returns the properties that all snapshots and forks of this backend have. It costs nothing, and
	// the result does not change while the process lives.
	Facts() Facts

	// Capture makes an immutable snapshot, with the name id, of tree as it is now. Atomic: where Facts.Frozen
	// is true, the snapshot shows the tree at one instant.
	//
	// Where an equal snapshot of the same tree exists, a backend may return that one instead; the caller must
	// use the ID of the result. A second call with the same id returns errs.ErrExists. Cost: constant in the
	// size of the tree, unless Facts.CopiesWhole.
	//
	// Errors: errs.ErrNotFound, errs.ErrExists, errs.ErrNotSupported (the backend cannot hold this kind of
	// tree), errs.ErrReadOnly, errs.ErrNoSpace, errs.ErrDenied.
	Capture(ctx context.Context, tree Tree, id ID) (Snapshot, error)

	// Fork makes a writable tree, named id, that begins as the snapshot from. Atomic. A second call with the
	// same id returns errs.ErrExists. Cost: constant, unless Facts.CopiesWhole. Errors: errs.ErrNotFound,
	// errs.ErrExists, errs.ErrNoSpace, errs.ErrDenied.
	Fork(ctx context.Context, from ID, id ForkID) (Fork, error)

	// Seal makes an immutable snapshot, named id, of the present state of the fork. The snapshot becomes the
	// fork's Base; the fork keeps its content and can be written on. With Idle the fork's View may change:
	// the caller must call LookupFork again.
	//
	// Atomic: after an error or a crash the fork has the content it had. Cost: constant if Idle; see [Use]
	// for InUse. Errors: errs.ErrNotFound, errs.ErrExists, errs.ErrNoSpace, errs.ErrBusy (the fork was sealed
	// as Idle and is in use, where a backend can detect that).
	Seal(ctx context.Context, fork ForkID, id ID, use Use) (Snapshot, error)

	// Lookup returns the description of the snapshot id. Cost: constant. Errors: errs.ErrNotFound,
	// errs.ErrCorrupt.
	Lookup(ctx context.Context, id ID) (Snapshot, error)

	// LookupFork returns the description of the fork id, with its present view. Cost: constant. Errors:
	// errs.ErrNotFound, errs.ErrCorrupt.
	LookupFork(ctx context.Context, id ForkID) (Fork, error)

	// List returns the ids of all snapshots and of all forks that the backend stores, each list sorted.
	// Half-made ones, which only Remove and RemoveFork accept, are included. Cost: in proportion to their
	// number.
	List(ctx context.Context) ([]ID, []ForkID, error)

	// Remove deletes the snapshot id at once and for good; its disk space may become free only by Sweep.
	// Forks of the snapshot stay intact.
	//
	// Remove may be called at any moment, and again: removing an id that does not exist is no error. It never
	// touches a directory or file without the backend's ownership mark. Cost: constant. Errors:
	// errs.ErrDenied, errs.ErrCorrupt (a file in the place of its record has no mark).
	Remove(ctx context.Context, id ID) error

	// RemoveFork deletes a fork, by the same rules as Remove. The caller has ended every process
	// that uses the fork. Errors: errs.ErrBusy (the fork is in use, where a backend can detect that),
	// errs.ErrDenied, errs.ErrCorrupt.
	RemoveFork(ctx context.Context, id ForkID) error
	// Sweep frees the disk space of removed snapshots and forks at a bounded rate, until nothing is left or
	// ctx ends. Two sweeps may run at once, and a sweep may be killed: the next one continues with the rest.
	// Errors: errs.ErrInterrupted, errs.ErrDenied, errs.ErrCorrupt (a record that might name data to delete
	// cannot be read).
	Sweep(ctx context.Context) error
	// Pending reports whether Sweep might free disk space now; false is certain. Cost: at most listing one
	// directory.
	Pending() bool
}

// Facts are the properties that all trees of one backend have, which callers check instead of the backend's
// name. The conformance suite checks each in both directions, with three exceptions: Flushes would take a
// second writer and Durable a reboot, so both are believed; and a backend may preserve inodes without the
// claim KeepsInodes.
type Facts struct {
	// Frozen is set if later writes to the real tree do not show in a snapshot.
	Frozen bool
	// CopiesWhole is set if a capture or a fork takes time in proportion to the size of the
	// tree.
	CopiesWhole bool
	// Flushes is set if a capture first writes all unsaved data of the tree's filesystem to
	// disk, and waits for that.
	Flushes bool
	// Unit is the amount of data that the first write to a shared file copies.
	Unit Unit
	// Durable is set if snapshots and forks survive an orderly reboot.
	Durable bool
	// KeepsInodes is set if a file that a fork has not changed has the same inode number, size
	// and ctime in every view of the fork and of its base.
	KeepsInodes bool
	// RealInodes is set if a file in a frozen snapshot that has not changed since the capture
	// has the inode number, size and ctime of the real file. Otherwise the files of a snapshot
	// are copies.
	RealInodes bool
	// DirRename is set if one rename(2) moves a directory of the base in a fork. Otherwise
	// rename returns EXDEV, and programs copy the directory instead.
	DirRename bool
	// PartsLinks is set if a write to one of several hard links of a base file makes that name
	// a file of its own (overlayfs without an index).
	PartsLinks bool
	// Served is set if a fork's view is a [View.Served], or an overlay with an [Overlay.Base].
	// A process outside the sandbox then does the sandbox's reads, which no I/O limit of the
	// sandbox covers.
	Served bool
	// Hidden is the absolute path of the backend's data, or "" if it has none on a filesystem that a
	// sandbox could show. Sandboxes must not see it, and comparisons skip it.
	Hidden string
}

// Unit is how much data a backend copies when a process first writes to a file that a fork shares with its
// base.
type Unit string

// The values of Unit: how much of a shared file the first write to it copies.
const (
	// ByBlock means that the first write to a shared file copies only the blocks that it touches.
	ByBlock Unit = "block"
	// ByFile means that the first write to a file copies the whole file, as a clone where its filesystem can
	// clone. Of a file of more than 1 MiB a backend may copy only blocks.
	ByFile Unit = "file"
)
