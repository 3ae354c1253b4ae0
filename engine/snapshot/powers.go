package snapshot

import (
	"context"
	"io/fs"
	"iter"
	"time"
)

// What a backend can do beyond the verbs is an interface of one method. The
// engine finds it with a type assertion, and works without it.

// A Cloner captures a tree and forks the capture in one step, where that is
// cheaper than the two verbs (btrfs: one transaction commit instead of two).
// It promises all that [Backend.Capture] followed by [Backend.Fork] do: the
// same errors, and after one no more than they leave. The view of the snapshot it need not
// give: then that is empty, and [Backend.Lookup] has it.
type Cloner interface {
	Clone(ctx context.Context, tree Tree, id ID, fork ForkID) (Snapshot, Fork, error)
}

// A Together clones several trees as they are at one instant: of two changes to them, one after the
// other, no base has the later one alone. (ZFS takes the snapshots of one pool in one transaction.)
type Together interface {
	// Instant names what a tree must have in common with others for that.
	Instant(tree Tree) (string, error)
	// CloneTogether is [Cloner] for each; trees and bases are in the same order. After an error
	// there is none of them. errs.ErrNotSupported, beside Clone's: these cannot be had at one instant.
	CloneTogether(ctx context.Context, trees []Cloning) (bases []Snapshot, err error)
}

// A Cloning says what the snapshot and the fork of a tree are to be called.
type Cloning struct {
	Tree Tree
	ID   ID
	Fork ForkID
}

// A Toucher knows, at a cost in proportion to what changed, where two states
// may differ. What it yields is a superset of the truth, in no order: the
// caller compares each place. It must miss nothing.
// Errors, yielded once as the last pair: errs.ErrNotFound, errs.ErrNotSupported (this
// process or kernel cannot; the caller then walks both trees), errs.ErrCorrupt.
type Toucher interface {
	// Touched compares the snapshot base with the fork.
	Touched(ctx context.Context, base ID, fork ForkID) iter.Seq2[Touch, error]
}

// A PairToucher does for two snapshots what a [Toucher] does for a snapshot and
// a fork, with the same errors. errs.ErrNotSupported: the two have nothing in common.
type PairToucher interface {
	TouchedBetween(ctx context.Context, a, b ID) iter.Seq2[Touch, error]
}

// A Drifter knows, at a cost in proportion to what changed, where the real tree
// may have moved on since a snapshot of it was taken. The rest is as with a
// [Toucher]: nothing is missed that was changed before the call, and what is
// yielded is compared by the caller. Errors, yielded once as the last pair:
// errs.ErrNotFound, errs.ErrNotSupported (this process cannot tell, or the tree is not the
// one that was captured; the caller then walks both), errs.ErrCorrupt.
type Drifter interface {
	// Drifted compares the snapshot id with the tree it is of as it is now.
	Drifted(ctx context.Context, id ID) iter.Seq2[Touch, error]
}

// A Touch is a place where two trees may differ.
type Touch struct {
	// Path is relative to the root of the tree, "." for the root itself, its
	// elements separated by slashes; any bytes but NUL.
	Path string
	// Tree: everything beneath Path may differ too. When false only the node
	// itself, and where it is a directory the names in it, need a look.
	Tree bool
	// Named: of the names in the directory, those that may differ are touched
	// places of their own. Nobody need list it to find them.
	Named bool
}

// A Keeper keeps what a live base held where a fork changes it, so that it is known even
// when the real tree is changed there, too.
type Keeper interface {
	// Originals yields the files of the real tree whose content the fork has changed
	// since base, in no order, each as it was at that moment. What is not yielded was not
	// changed, or is not known. Cost: in proportion to what the fork has changed. Errors,
	// yielded once as the last pair: errs.ErrNotFound, errs.ErrCorrupt, errs.ErrNotSupported (the two have
	// nothing in common).
	Originals(ctx context.Context, base ID, fork ForkID) iter.Seq2[Original, error]
}

// A Raiser has forks on a live base that read some of what they show from another name than their own: what
// they have renamed, and not written to, is where the tree has it.
type Raiser interface {
	// Borrowed answers with where a fork does so. What lies in a directory that is named,
	// and is borrowed with it, is not named itself. Cost: in proportion to what the fork has
	// changed since its base. Errors: errs.ErrNotFound, errs.ErrCorrupt.
	Borrowed(ctx context.Context, fork ForkID) ([]Borrowed, error)
	// Raise has the fork, in which nothing runs, hold by itself what it shows at these
	// places: it is there from then on, whatever becomes of the tree. The fork shows
	// afterwards what it showed before, and so it does after an error or a kill; repeating it
	// goes on. mounted calls do with a descriptor of the fork's own tree, which may be written to until
	// do returns. Cost: a copy of what
	// is raised, where the filesystem cannot share its blocks. Errors: errs.ErrNotFound,
	// errs.ErrNoSpace, errs.ErrBusy, errs.ErrDrifted (the tree has it no more), errs.ErrInterrupted.
	Raise(ctx context.Context, fork ForkID, what []Borrowed, mounted func(do func(root int) error) error) error
}

// A Borrowed is a place that a fork shows from another one of the tree. Paths are as those of a [Touch].
type Borrowed struct {
	// Path is what the fork calls it, From what the tree does.
	Path, From string
	// Tree: all that From has is shown there, but for what the fork has changed.
	Tree bool
}

// An Original is a regular file as it was when a fork first changed its content.
type Original struct {
	Path     string // as that of a [Touch]
	Mode     fs.FileMode
	UID, GID uint32
	Size     int64
	// CTime tells whether the real tree had been changed before that.
	MTime, CTime time.Time
	Xattrs       map[string]string
	// Content is a file that has it, and stays as long as the fork does; "": it was not kept.
	Content string
}

// A Meter tells the bytes a fork holds that its base does not. Cost: in
// proportion to what the fork has changed, at most. Errors: errs.ErrNotFound,
// errs.ErrNotSupported (this process may not know), errs.ErrInterrupted.
type Meter interface {
	Usage(ctx context.Context, fork ForkID) (Bytes, error)
}

// A Weigher copies all of a tree that it captures, and all of it again for each fork, and
// says beforehand how much that is.
type Weigher interface {
	// Weigh counts what one copy of a tree holds. Cost: a look at the metadata of each
	// file. Errors: errs.ErrNotFound, errs.ErrInterrupted.
	Weigh(ctx context.Context, tree Tree) (Weight, error)
}

// A Weight is that of a copy.
type Weight struct {
	// Files counts directories and all else that has a name.
	Files int
	// Bytes are those that it takes on the disk.
	Bytes Bytes
	// Room is what the disk for copies has free; -1 where one may take less than Bytes.
	Room Bytes
}

// A Sweeper gives back the space of what was removed, at a bounded rate, until
// nothing is left or ctx ends. It is safe to run twice at once and to kill: what
// it has not come to, or could not remove, the next one finds. Errors:
// errs.ErrInterrupted, errs.ErrDenied, errs.ErrCorrupt (a record that might name what is to go).
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// A Pender tells whether a sweep would give space back at once, at the cost of
// a look into a directory. A backend without it is always swept.
type Pender interface {
	Pending() bool
}

// A Stocker puts ready-made forks of a snapshot by, so that a later Fork or
// Clone of an unchanged tree is a rename. Afterwards there are n of them at
// least, which go when the snapshot is removed. It is safe to run twice at once
// and to kill. Cost: that of as many forks as are missing. Errors: errs.ErrNotFound,
// errs.ErrNoSpace, errs.ErrInterrupted; what was put by before one stays.
type Stocker interface {
	Stock(ctx context.Context, from ID, n int) error
}

// A Settler makes a fork's content safe after its last process has ended: what
// was written without waiting for the disk is on stable storage afterwards, and
// the fork can be reached again. Repeating it is harmless. A fork that is
// found unsettled after the machine went down is answered with errs.ErrCorrupt. Cost:
// writing out what the filesystem holds unsaved. Errors: errs.ErrNotFound, errs.ErrCorrupt,
// errs.ErrNoSpace; the fork is then as it was.
type Settler interface {
	Settle(ctx context.Context, fork ForkID) error
}

// A Narrower shows a directory of a tree alone. The kernel refuses an ordinary
// user an overlay of a directory in which somebody has mounted a filesystem
// since, but not of those beside it.
type Narrower interface {
	// Narrow answers how to reach dir, a clean path beneath the tree's root, of a
	// view that this backend has given. With write what is changed there is
	// changed in the view: the fork's own layer gets the directories down to dir,
	// as writing there would make them, and nothing may have it mounted. Without,
	// the answer is for reading, and nothing is made. Repeating it is harmless, and
	// after an error the view is as it was. Cost: some look-ups for each layer.
	// Errors: errs.ErrNotFound (no such directory), errs.ErrNotSupported.
	Narrow(ctx context.Context, v View, dir string, write bool) (View, error)
}

// A Returner takes a fork back to a state, which may be in use. What is frozen and live, limited and
// held is as of a new fork of that state; the fork keeps its name, its limit, and its mounts.
type Returner interface {
	// Return has the fork hold what a snapshot of its tree holds. What it held is lost. With InUse
	// somebody has it mounted, who writes nothing meanwhile: he finds the snapshot's content at once, in files
	// that he has open or mapped too, and what is not in the snapshot and he has open lives on without
	// a name, or answers ESTALE where its content cannot be had any more. Atomic. Errors: errs.ErrNotFound; errs.ErrNotSupported
	// (the snapshot stands on another base); errs.ErrBusy, errs.ErrNoSpace, errs.ErrInterrupted.
	Return(ctx context.Context, fork ForkID, to ID, use Use) error
	// Base is what the fork was last made of, sealed as or taken back to. A process that serves the fork may
	// still be about to take it back when who called Return was killed: that is waited for. Errors: errs.ErrNotFound,
	// errs.ErrInterrupted.
	Base(ctx context.Context, fork ForkID) (ID, error)
}

// A Hider keeps data on the tree's own filesystem, at absolute paths which no
// sandbox may see and no comparison looks at. It costs nothing.
type Hider interface {
	Hidden() []string
}

// A Scratcher has room for what is no part of a tree, and counts for its limit all the
// same.
type Scratcher interface {
	// Scratch answers with a directory for the fork and its kin, which are those with
	// the same id up to the first hyphen: at first an empty one that anybody may
	// write to, as /tmp. What is in it counts for the limit of the fork. It goes when
	// the last of them is removed, at the next sweep. Cost: that of a fork, once.
	// Errors: errs.ErrNotFound, errs.ErrNoSpace.
	Scratch(ctx context.Context, fork ForkID) (string, error)
}

// A Loser has forks that are served, by a process that can be lost.
type Loser interface {
	// Lost waits until the process that serves a fork has ended, and reports whether it
	// was killed: then each mount of the fork answers ENOTCONN for good, and what was
	// synced is there when it is mounted again. False: the process ended because nobody
	// has the fork mounted any more, or ctx has ended before. One that nobody serves has
	// lost its process before, if it is mounted. Cost: some system calls.
	Lost(ctx context.Context, fork ForkID) bool
}

// A Noticer serves forks of a live base, and has seen which files had changed below when they were read.
type Noticer interface {
	// Noticed are the files of the live tree, by paths relative to it, whose content was read through a
	// fork, by whomever, at a time when they had the change time of the fork's base or a later one: what the
	// fork shows of them is not its base. Each is told from when it is first read so, and as long as the fork is
	// mounted, up to 500. What was read before it changed, or the kernel has not asked for since, is not told. Cost:
	// some system calls. Errors: errs.ErrNotFound.
	Noticed(ctx context.Context, fork ForkID) ([]string, error)
}

// A Tender has something to look after while anything runs in one of its forks.
type Tender interface {
	// Tend is called every ten seconds or so, and costs some system calls.
	Tend(ctx context.Context) error
}

// A Checker looks whether all that it keeps of a fork fits together.
type Checker interface {
	// Check says what is wrong with what the fork is made of, that which it has in common
	// with others included; nothing: all is well. What a killed process leaves, and the
	// next that uses the fork puts in order, is nothing wrong. Without repair nothing is
	// changed. With it, what can be is mended, and each problem says whether it was: nothing
	// is written over or thrown away for it that might be wanted, what others have in common
	// with the fork stays as it is, and a second check has nothing to say of what was
	// mended. Repeating it is harmless, and after an error the fork can be checked again.
	// Cost: in proportion to what was ever changed in it. Errors: errs.ErrNotFound, errs.ErrBusy (it
	// is in use), errs.ErrCorrupt (its record), errs.ErrNoSpace.
	Check(ctx context.Context, fork ForkID, repair bool) ([]Problem, error)
}

// A Problem is something that a [Checker] has found.
type Problem struct {
	// Where is the file or directory of the backend's data that it is in.
	Where string
	// What is a sentence, with the path in the tree that it is about, if there is one.
	What   string
	Mended bool
}
