// Package snapshot is the contract between snapfs and the ways of copying a
// directory tree in constant time. It is the first file to read: everything
// else either keeps this contract or relies on it.
//
// # Life cycle
//
//	          Capture                Fork
//	Tree ───────────────► snapshot ─────────► fork ──┐ written to
//	(the real one)           ▲                  │  ▲ │ by a sandbox
//	                         └────── Seal ──────┘  └─┘
//
// A [Tree] is a directory tree of the real machine. A snapshot ([ID]) is an
// immutable state of a tree. A fork ([ForkID]) is a writable tree that began
// as a snapshot. A snapshot never becomes a fork nor a fork a snapshot, and the
// two have different types, so the compiler knows which of them may be written.
//
// # What a backend is not
//
// A backend holds data. Names, parents, owners and states live once, in
// engine/catalog, which also chooses the ids; a backend only has to keep the
// trees apart by them. A backend makes no lasting mount: it answers with a
// [View], which says how to reach a tree, and whoever needs the tree follows it
// (isolation, diff, tests), in a mount namespace that dies with its user.
//
// # Scenarios
//
// Run something and throw it away:
//
//	base, _ := b.Capture(ctx, tree, "s1")
//	fork, _ := b.Fork(ctx, base.ID, "f1")   // fork.View says where to run
//	b.RemoveFork(ctx, "f1")
//	b.Remove(ctx, "s1")
//
// Name a state and come back to it; rolling back is forking again:
//
//	b.Seal(ctx, "f1", "s2", Idle)            // f1 goes on from s2
//	fork, _ = b.Fork(ctx, "s2", "f2")        // the state of s2, writable
//	b.RemoveFork(ctx, "f1")
//
// Fork a sandbox whose processes run (the caller has frozen them):
//
//	b.Seal(ctx, "f1", "s3", InUse)           // f1's view stays as it is
//	b.Fork(ctx, "s3", "f3")
//
// # Rules for every method
//
// All errors are of type [*errs.Error] and match one of the sentinels of package errs.
// A cancelled context ends a method at its next safe point with
// [errs.ErrInterrupted]. A method that fails, or whose process is killed, leaves
// either nothing, or something that Remove or RemoveFork of the same id takes
// away; it never leaves a half-made snapshot that Lookup answers for. All
// methods may be called from many goroutines and many processes at once.
package snapshot

import (
	"context"
	"time"
)

// A Tree is a directory tree of the real machine that can be captured.
type Tree struct {
	// Path is its root: absolute, clean, and with no symbolic link in it.
	Path string
}

// ID names a snapshot within one backend: 1 to 64 characters of [a-z0-9-],
// beginning with a letter or digit. See [ValidID].
type ID string

// ForkID names a fork within one backend, by the same rules as [ID].
type ForkID string

// Snapshot describes an immutable state of a tree.
type Snapshot struct {
	ID ID
	// Tree is what was captured; for a sealed fork, the tree its base came from.
	Tree Tree
	// Taken is the instant the snapshot stands for, by the clock of the
	// filesystem that holds the tree (so that it may be compared with ctimes).
	Taken time.Time
	// Frozen reports whether later writes to the real tree leave this
	// snapshot alone. A snapshot of a live lower layer is not frozen: what no
	// fork has changed is read from the real tree as it is now.
	Frozen bool
	// View is how to read it. It has no writable part.
	View View
}

// Fork describes a writable tree grown from a snapshot.
type Fork struct {
	ID ForkID
	// Base is the snapshot it was forked from or last sealed into.
	Base ID
	// View is how to reach it. It stays valid until the fork is removed or
	// sealed as [Idle].
	View View
}

// A View says how to reach a tree: it is Path, the Overlay to mount, or what is
// Served.
type View struct {
	// Path is the directory that holds the tree, when the others are nil.
	Path string
	// Overlay is what to mount to see the tree, or nil.
	Overlay *Overlay
	// Served is what mounts the tree, or nil.
	Served Served
}

// Served is a tree that no filesystem of the kernel shows, so that a process has to
// answer for it.
type Served interface {
	// Mount mounts the tree, detached, where nobody sees it: the answer is a
	// descriptor of its root, opened with O_PATH, and closing it takes a mount away
	// that has not been attached anywhere. The tree is served by this process for as long as any
	// mount of it is there, and what was written is in the fork when the last has
	// gone; or it is served by the process that does so already. It is in the
	// namespace of who calls, who must be allowed to mount there. A fork is to be
	// written to by one process tree only; with readOnly it can be looked at whoever
	// has it. Cost: in proportion to what was ever changed in the tree, at some
	// microseconds a node. Errors: errs.ErrNotFound, errs.ErrCorrupt, errs.ErrBusy, errs.ErrDenied,
	// errs.ErrNotSupported (no /dev/fuse, or it may not be mounted).
	Mount(ctx context.Context, readOnly bool) (fd int, err error)
}

// Overlay describes one mount of the kernel's overlayfs.
type Overlay struct {
	// Lower are the read-only layers, the topmost first; at least one, unless there is a Base.
	Lower []string
	// Base is beneath all of them, the topmost first: a tree that is only read, served by a process, in
	// one part or several, of which none is the tree without the others.
	Base []Served
	// Upper and Work are the writable layer and its work directory; both are
	// empty in the view of a snapshot.
	Upper, Work string
	// UserXattr keeps overlayfs's own records in user.* rather than trusted.*
	// attributes. Kernels require it in a user namespace and exclude
	// redirect_dir and metacopy with it (Documentation/filesystems/overlayfs).
	UserXattr bool
	// Nested: the last of Lower, the tree itself, contains the other layers,
	// because the state directory lies in it. The kernel refuses that (ELOOP).
	// Whoever mounts makes a read-only overlay of the last one alone first, and
	// uses that in its place; internal/kernel does it.
	Nested bool
}

// Use says whether processes hold files of a fork open.
type Use int

// Whether a fork is in use while it is sealed.
const (
	// Idle: no process has the fork's view mounted or open. Sealing may move
	// its data, and takes constant time.
	Idle Use = iota
	// InUse: processes run on the view and are frozen meanwhile by the caller.
	// Sealing leaves the view in place, and may take time in proportion to
	// what the fork has changed since its base.
	InUse
)

// A Backend keeps snapshots and forks of trees. See the package comment for
// the rules that hold for every method.
type Backend interface {
	// Facts says what holds for every snapshot and fork of this backend.
	// It costs nothing and never changes while the process lives.
	Facts() Facts

	// Capture makes an immutable snapshot of tree as it is now. Atomic: the
	// snapshot stands for one instant where Facts.Frozen is true. Where an
	// equal snapshot of the same tree already exists, a backend may answer
	// with that one instead, so that the ID in the answer is the one to keep.
	// Repeating it with the same id gives errs.ErrExists.
	// Cost: constant in the size of the tree, unless Facts.CopiesWhole.
	// Errors: errs.ErrNotFound, errs.ErrExists, errs.ErrNotSupported (the tree is not of a
	// kind this backend can hold), errs.ErrReadOnly, errs.ErrNoSpace, errs.ErrDenied.
	Capture(ctx context.Context, tree Tree, id ID) (Snapshot, error)

	// Fork makes a writable tree that begins as the snapshot from. Atomic.
	// Repeating it with the same id gives errs.ErrExists. Cost: constant.
	// Errors: errs.ErrNotFound, errs.ErrExists, errs.ErrNoSpace, errs.ErrDenied.
	Fork(ctx context.Context, from ID, id ForkID) (Fork, error)

	// Seal makes the present state of a fork an immutable snapshot, which
	// becomes the fork's Base; the fork lives on, with the same content.
	// With Idle the fork's View may be another afterwards: ask LookupFork.
	// Atomic: after an error, or a crash, the fork has the content it had.
	// Cost: constant when Idle; see [Use] otherwise.
	// Errors: errs.ErrNotFound, errs.ErrExists, errs.ErrNoSpace, errs.ErrBusy (sealed as Idle but
	// found to be in use, where a backend can tell).
	Seal(ctx context.Context, fork ForkID, id ID, use Use) (Snapshot, error)

	// Lookup describes a snapshot. Cost: constant. Errors: errs.ErrNotFound,
	// errs.ErrCorrupt.
	Lookup(ctx context.Context, id ID) (Snapshot, error)

	// LookupFork describes a fork. Cost: constant. Errors: errs.ErrNotFound,
	// errs.ErrCorrupt.
	LookupFork(ctx context.Context, id ForkID) (Fork, error)

	// List names all snapshots and forks, the half-made ones that only
	// Remove and RemoveFork accept included, each list sorted. Cost: in
	// proportion to their number.
	List(ctx context.Context) ([]ID, []ForkID, error)

	// Remove forgets a snapshot, at once and for good; its space may come
	// back later (see [Sweeper]). Safe at any moment and repeatable: removing
	// what is not there is no error. Forks grown from it keep working.
	// Never touches anything that lacks the backend's own mark.
	// Cost: constant. Errors: errs.ErrDenied.
	Remove(ctx context.Context, id ID) error

	// RemoveFork forgets a fork, by the same rules as Remove. The caller has
	// ended every process that uses it. Errors: errs.ErrBusy where a backend can
	// tell that it is in use, errs.ErrDenied.
	RemoveFork(ctx context.Context, id ForkID) error
}

// Facts are what holds for all trees of one backend. The conformance suite
// checks each of them in both directions, but for three: Flushes and Durable,
// which would take another's writes and a reboot, are taken at their word, and a
// backend may keep inodes that does not claim to.
type Facts struct {
	// Frozen: a capture is unaffected by later writes to the real tree.
	Frozen bool
	// CopiesWhole: a capture or fork costs time in proportion to the tree.
	CopiesWhole bool
	// Flushes: a capture first writes out what the tree's filesystem holds
	// unsaved, and waits for the disk.
	Flushes bool
	// Unit is how much is copied when a byte of a shared file is changed.
	Unit Unit
	// Durable: snapshots and forks are there after an orderly reboot.
	Durable bool
	// KeepsInodes: a file that a fork has not changed has the inode number,
	// size and change time it has in the snapshot, whichever view shows it.
	KeepsInodes bool
	// RealInodes: a file that has not been changed since the capture has in a
	// frozen snapshot the inode number, size and change time that the real
	// one has (false: a snapshot is made of copies).
	RealInodes bool
	// DirRename: a directory of the base can be renamed in a fork with one
	// system call (false: EXDEV, and programs fall back to copying).
	DirRename bool
	// PartsLinks: a file of the base that has several names becomes two files
	// in a fork when one of them is written to (overlayfs without an index).
	PartsLinks bool
	// Served: the view of a fork is [View.Served] or an overlay with a [Overlay.Base], so that
	// what a sandbox reads is read by a process outside of it, which no limit on the
	// sandbox's input and output holds.
	Served bool
}

// Unit is the granularity of copy-on-write.
type Unit string

// The units of copy-on-write.
const (
	ByBlock Unit = "block" // only the changed blocks
	// ByFile: the whole file at the first write, by a clone where its filesystem can. Of one
	// of more than 1 MiB blocks may do.
	ByFile Unit = "file"
)
