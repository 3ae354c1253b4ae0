package isolate

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/isolate/internal/digest"
	"github.com/snapfs/snapfs/isolate/landlock"
	"github.com/snapfs/snapfs/isolate/mounts"
)

// ErrOldLandlock is in the chain of the error of a container that does not start because the host's kernel has no
// Landlock, or one too old for [Spec.Execute], [Spec.Writable] or [Spec.Readable].
var ErrOldLandlock = landlock.ErrOld

// PruneImages removes what is stored in the directory images ([Spec.Images]) and no container has used for 30 days.
func PruneImages(images string) error { return mounts.PruneStored(images) }

// A Spec is the policy of a container: what its processes may see and do. It is a plain value; nothing
// happens until [Prepare].
type Spec struct {
	// Mounts are the trees of the container, in order; the first has the target "/". A target must exist as a
	// directory in the mounts before it. On top of them every container has its own /proc, /sys, /dev, /run and
	// /tmp.
	Mounts []Mount
	// Tmp is the host directory to use as /tmp, so that it outlives the container. Empty: a fresh tmpfs.
	Tmp string
	// TmpLimits are options of tmpfs, such as "size=1048576", that bound each of /tmp (without Tmp), /dev and
	// /run. Whatever they are, /tmp holds at most half of the host's memory, /dev a fifth and /run a tenth.
	TmpLimits []string
	// Hide are absolute paths inside the container to mask: a directory with an empty read-only directory, a
	// file with an empty read-only file. Paths that do not exist are skipped. A symbolic link is resolved
	// inside the container and its target is masked.
	Hide []string
	// Redacted are read-only files with which some of Hide are masked, in place of empty ones: at most
	// [mounts.MaxRedacted].
	Redacted []Redacted
	// ReadOnly are absolute paths inside the container to make read-only, with everything below them, by the
	// same rules as Hide.
	ReadOnly []string
	// NoExec are absolute paths inside the container from which nothing can be executed, neither by execve(2)
	// nor by mapping: programs, or directories with everything below them. Symbolic links are resolved inside the
	// container, and paths that do not exist are skipped. A copy elsewhere is not affected.
	NoExec []string
	// Execute, if it is not nil, are the absolute paths inside the container of all programs that can be executed,
	// and directories with everything below them. The kernel's Landlock enforces it (ABI 2, Linux 5.19). The dynamic
	// linkers can always be executed, because a program needs its own. A path that does not exist is skipped, and so is
	// one with a symbolic link, which may be work of a command in an earlier container of the same trees.
	Execute []string
	// Digests are the digests that programs must have for the container to start, by the rules of Execute. The
	// programs are read-only in the container, as the paths of ReadOnly, so that they keep this content. A container
	// with Digests has no command when it is prepared. DigestCache is a directory of the host in which the digests of
	// unchanged programs are stored, which only this user may reach, or "".
	Digests     []Digest
	DigestCache string
	// Guarded are the absolute paths inside the container of programs that no process can execute or read there: at each
	// path is a stub (package stub), which has the supervisor decide. Only a command with [Command.Guarded] executes one,
	// and no process outside of that command can trace it. Execute must not be nil, and must have none of them, nor a
	// directory above one. A path that does not exist is skipped, and so is one with a symbolic link.
	Guarded []string
	// Writable, if it is not nil, are the absolute paths inside the container of the only files and directories, with
	// everything below them, that can be written, created, renamed or removed, besides /tmp, /dev, /run and /proc. Paths
	// are skipped as in Execute. The kernel's Landlock enforces it (ABI 3, Linux 6.2), which knows no rule for
	// the mode, the owner, the times and the attributes of a file.
	Writable []string
	// Readable, if it is not nil, are the absolute paths inside the container of the only files and directories, with
	// everything below them, that can be read, listed and executed, besides [AlwaysReadable] and Writable. Paths are
	// skipped as in Execute. The kernel's Landlock enforces it (ABI 2, Linux 5.19), which knows no rule for names,
	// attributes and the targets of symbolic links. A process that may write the directory of a readable path can put
	// another file there, which the next container then has as the readable one, unless Writable is set.
	Readable []string
	// Hostname is the container's host name. Empty: the host's.
	Hostname string
	// Network is the container's network.
	Network Network
	// Edge holds the addresses for [NetworkEdge], and is nil for other networks.
	Edge *EdgeAddrs
	// Resolver is the only name server in the container. A read-only file with it covers
	// /etc/resolv.conf, which must exist; if that is a symbolic link, the file covers the link
	// itself. The zero value leaves it unchanged.
	Resolver netip.Addr
	// IDs is the id mapping: which users of the host the users inside are.
	IDs IDs
	// Cgroups are open directories of cgroups (any number of v1 hierarchies, at most one of v2) that the
	// container enters before any command runs. The caller creates and closes them, and removes them after
	// Close.
	Cgroups []*os.File
	// Rlimits are the limits of every command, the first and those of Exec, but not of pid 1. Other limits are
	// inherited from the supervisor. A limit above the supervisor's own hard limit is an error.
	Rlimits []Rlimit
	// MapIDs mounts trees that the kernel cannot id-map, with ids mapped by FUSE. Nil: such trees
	// are errors.
	MapIDs IDMapper
	// Images is a directory, made when needed, in which Start stores what hides the entries that mounts hide, so that the
	// next container that hides the same ones starts sooner. Only the caller may write there. "" stores none.
	Images string
	// Observe, if it is not nil, observes system calls by which a process in the container acts on a file.
	Observe *Observer
	// BestEffort continues without a protection that this host cannot give, and reports it in
	// [Container.Level]. Otherwise a missing protection is an error.
	BestEffort bool
}

// ErrDigest is in the chain of the error of a container that does not start because the content of a program is not the
// one that [Spec.Digests] requires.
var ErrDigest = digest.ErrContent

// An Observer observes system calls of some kinds, by which a process in a container acts on a file. It requires
// seccomp(2) of Linux 5.19, takes some tens of microseconds a call of its kinds and nothing for others, and no process
// in the container can then observe others by the same means.
type Observer struct {
	// Files is the kind of calls that open or look up a file, Programs the kind that executes a program, and Writes
	// the kind that opens a file for writing, or creates, renames, removes or changes a file. Reads is the kind that opens
	// a file or a directory for reading, and Moves the kind that renames or links one. At least one must be set.
	Files, Programs, Writes, Reads, Moves bool
	// Call is called for each such system call, before the kernel does it. It must return soon, since the process
	// waits. If it returns false, the system call fails with EIO, but for the execution of a command's own program. A
	// process may change what it asks for meanwhile: this is a report, and no wall.
	Call func(Observed) bool
}

// check returns an error if nothing would be observed.
func (o *Observer) check() error {
	if o != nil && (o.Call == nil || !o.Files && !o.Programs && !o.Writes && !o.Reads && !o.Moves) {
		return mounts.Invalid("the observer has no function, or no kind of system call to observe")
	}
	return nil
}

// An Observed is a system call by which a process in a container acts on a file. [Observer.Call] gets one for each
// such call.
type Observed struct {
	// PID is the process on the host.
	PID int
	// Act is what the call does.
	Act Act
	// Path is the absolute path as the process names it, if it opens or looks up a file; otherwise the path after
	// symbolic links.
	Path string
	// To is the other name of the file, also after symbolic links, if Act is ActMove.
	To string
}

// An Act is what an observed system call does with a file, for an [Observer].
type Act int

// The acts of observed system calls.
const (
	// ActLookup is to open or look up a file, whether or not it exists.
	ActLookup Act = iota + 1
	// ActExec is to execute a program that exists, or the interpreter of a script.
	ActExec
	// ActWrite is to open a file for writing, or to create, rename, truncate or remove one. It is observed if the
	// file exists or could be created, so that the call fails only if the file may not be written.
	ActWrite
	// ActSetAttr is to change the mode, the owner or the times of a file that exists.
	ActSetAttr
	// ActRead is to open a regular file or a directory for reading. It is observed if that exists, so that the call
	// fails only if the file may not be read.
	ActRead
	// ActMove is to rename or to link a file or a directory that exists. It is observed for both names if the call may
	// exchange them.
	ActMove
)

// AlwaysWritable and AlwaysReadable are the directories that a container's processes may always write to and read, even
// if [Spec.Writable] and [Spec.Readable] lack them.
var (
	AlwaysWritable = landlock.AlwaysWritable
	AlwaysReadable = landlock.AlwaysReadable
)

// Network is the kind of network that a container has: none, the host's, or one of its own whose packets a
// proxy reads.
type Network string

// The networks that a container can have, for [Spec.Network].
const (
	// NetworkNone gives the container a loopback interface of its own, and nothing else.
	NetworkNone Network = "none"
	// NetworkHost lets the container use the host's network. Landlock denies the host's abstract unix sockets
	// if it can (ABI 6, Linux 6.12); otherwise Level.String reports them.
	NetworkHost Network = "host"
	// NetworkEdge gives the container a network of its own, with a loopback interface and one other, snapfs0,
	// whose other end is [Container.Tun]. The proxy that reads Tun decides what the container reaches; no
	// process in the container can change the interface, its addresses or its routes. The caller must be able
	// to open /dev/net/tun. Cost: 0.4 ms more than [NetworkNone].
	NetworkEdge Network = "edge"
)

type (
	// A Mount is a directory tree that a container shows, with its path there: see [mounts.Mount].
	Mount = mounts.Mount
	// A Hidden is a directory with entries that a tree does not show: see [mounts.Hidden].
	Hidden = mounts.Hidden
	// A StandIn is an empty file or the like in place of an entry that a tree does not show: see
	// [mounts.StandIn].
	StandIn = mounts.StandIn
	// A Redacted is a file without its secrets that masks the original: see [mounts.Redacted].
	Redacted = mounts.Redacted
	// An Overlay is a mount of overlayfs, which shows a fork's tree in a container: see [mounts.Overlay].
	Overlay = mounts.Overlay
	// IDs says to which ids of the host the user and group ids in a container are mapped: see [mounts.IDs].
	IDs = mounts.IDs
	// A Digest is the SHA-256 digest, in hexadecimal, that the program at a path must have when a container starts:
	// see [digest.Program].
	Digest = digest.Program
	// An IDMapper starts a process that shows a tree with mapped ids, over FUSE: see [mounts.IDMapper].
	IDMapper = mounts.IDMapper
)

// The kinds of files that replace an entry that a tree does not show: see [mounts.StandInKind].
const (
	EmptyDir  = mounts.EmptyDir
	EmptyFile = mounts.EmptyFile
	Link      = mounts.Link
)

// Same maps only the user and group of the process that makes a container, to themselves in the container:
// see [mounts.Same].
var Same = IDs{}

// Own returns the mapping of a container's user and group ids to 65536 ids of the host from base on: see
// [mounts.Own].
var Own = mounts.Own

// MaxFurther is how many user ids beyond the 65536 of [Own] a container can have, for files whose owner has a
// larger id.
const MaxFurther = mounts.MaxFurther

// trees returns the part of the policy that determines the container's file tree, for package mounts.
func (s Spec) trees() mounts.Spec {
	return mounts.Spec{
		Mounts: s.Mounts, Tmp: s.Tmp, TmpLimits: s.TmpLimits, Hide: s.Hide, Redacted: s.Redacted, ReadOnly: s.readOnly(), NoExec: s.NoExec, Resolver: s.Resolver, IDs: s.IDs,
		HostNetwork: s.Network == NetworkHost, MapIDs: s.MapIDs, Images: s.Images, Guarded: s.Guarded,
	}
}

// landlock returns the lists of paths that the kernel's Landlock enforces.
func (s Spec) landlock() landlock.Rules {
	return landlock.Rules{Execute: s.Execute, Writable: s.Writable, Readable: s.Readable}
}

// writableTrees returns the targets of the mounts that processes may write to.
func (s Spec) writableTrees() (targets []string) {
	for _, m := range s.Mounts {
		if !m.ReadOnly {
			targets = append(targets, m.Target)
		}
	}
	return targets
}

// readOnly returns the paths to make read-only: those of ReadOnly, and the programs with a digest.
func (s Spec) readOnly() []string {
	list := slices.Clip(s.ReadOnly)
	for _, d := range s.Digests {
		if !slices.Contains(list, d.Path) {
			list = append(list, d.Path)
		}
	}
	return list
}

// String returns the whole policy of a container as text for the user, one part on each line.
func (s Spec) String() string {
	var b strings.Builder
	for _, m := range s.Mounts {
		fmt.Fprintln(&b, "mount", m)
	}
	if s.Tmp != "" {
		fmt.Fprintln(&b, "tmp", s.Tmp)
	}
	for _, o := range s.TmpLimits {
		fmt.Fprintln(&b, "tmp limit", o)
	}
	for _, p := range s.ReadOnly {
		fmt.Fprintln(&b, "read-only", p)
	}
	for _, p := range s.Hide {
		fmt.Fprintln(&b, "hide", p)
	}
	for _, r := range s.Redacted {
		fmt.Fprintln(&b, "redacted", r.Path)
	}
	for _, p := range s.NoExec {
		fmt.Fprintln(&b, "no exec", p)
	}
	if s.Execute != nil {
		fmt.Fprintln(&b, "execute only", strings.Join(s.Execute, " "))
	}
	for _, p := range s.Guarded {
		fmt.Fprintln(&b, "guarded", p)
	}
	for _, d := range s.Digests {
		fmt.Fprintln(&b, "digest", d.Path, d.SHA256)
	}
	if s.Writable != nil {
		fmt.Fprintln(&b, "write only", strings.Join(s.Writable, " "))
	}
	if s.Readable != nil {
		fmt.Fprintln(&b, "readable only", strings.Join(s.Readable, " "))
	}
	if s.Hostname != "" {
		fmt.Fprintln(&b, "hostname", s.Hostname)
	}
	fmt.Fprintln(&b, "network", s.Network)
	if s.Edge != nil {
		fmt.Fprintln(&b, "edge", s.Edge)
	}
	if s.Resolver.IsValid() {
		fmt.Fprintln(&b, "resolver", s.Resolver)
	}
	fmt.Fprintln(&b, "ids", s.IDs)
	for _, r := range s.Rlimits {
		fmt.Fprintln(&b, "limit", r)
	}
	if s.BestEffort {
		fmt.Fprintln(&b, "best effort")
	}
	return b.String()
}
