//go:build linux

package treetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
)

// An Op is the kind of change that a [Step] makes to a tree, such as creating or renaming a file.
type Op string

// The kinds of changes to a tree of files that a random [Script] of a test makes.
const (
	Create   Op = "create"   // a regular file of Size bytes
	Write    Op = "write"    // Size bytes at Off, in place
	Append   Op = "append"   // Size bytes at the end
	Truncate Op = "truncate" // to Size, shorter or longer
	Mmap     Op = "mmap"     // the same as Write, through a shared mapping
	Punch    Op = "punch"    // a hole of Size bytes at Off
	Mkdir    Op = "mkdir"
	Rmdir    Op = "rmdir"
	Rename   Op = "rename"   // over To where it exists
	Exchange Op = "exchange" // Path and To
	Link     Op = "link"     // To becomes another name of Path
	Symlink  Op = "symlink"  // Path points to To
	Fifo     Op = "fifo"
	Socket   Op = "socket"
	Device   Op = "device" // character or block device Dev, by Mode
	Chmod    Op = "chmod"
	Chown    Op = "chown"
	Utimes   Op = "utimes"
	Setxattr Op = "setxattr"
	Delxattr Op = "delxattr"
	Unlink   Op = "unlink"
	RemoveRF Op = "rm -r"
)

// A Step is one change of a file tree, part of a random [Script] that tests play on the filesystem under test
// and on an ordinary one. Path and To are relative to the tree's root.
type Step struct {
	Op       Op
	Path, To string
	// Size and Off are in bytes; Seed determines the written data.
	Size, Off int64
	Seed      uint64
	Mode      uint32
	UID, GID  int
	Dev       uint64
	Attr      string
	Value     []byte
	// Time, in seconds since 1970, becomes the modification time of each file that the step
	// changes, so that playing a script always gives the same tree.
	Time int64
}

func (s Step) String() string {
	str := fmt.Sprintf("%s %q", s.Op, s.Path)
	if s.To != "" {
		str += fmt.Sprintf(" %q", s.To)
	}
	return str
}

// A Script is a sequence of changes of a file tree that tests play on the filesystem under test and on an
// ordinary one, to compare the results. Each step succeeds on the tree that the step before leaves.
type Script []Step

// Play makes the changes of the script in the open directory root. It stops at the first step that fails, and
// the error names that step.
func (s Script) Play(root *os.File) error {
	for i, step := range s {
		if err := step.play(root); err != nil {
			return fmt.Errorf("step %d, %v: %w", i, step, err)
		}
	}
	return nil
}

// Powers restrict which changes to a tree a [Writer] may put into a random script for a test, because some
// filesystems and users cannot make all of them.
type Powers struct {
	// Root allows steps that need root: devices, owners, file capabilities and set-id bits.
	Root bool
	// NoDirRename excludes renames of directories, which some overlays refuse (EXDEV).
	NoDirRename bool
	// ShortRenames excludes renames and links of long paths, which overlays with redirect_dir
	// or metacopy refuse (EXDEV).
	ShortRenames bool
	// KeepOldLinks excludes changes of files that had several names when Freeze was called:
	// without an index, overlayfs separates hard links that are changed.
	KeepOldLinks bool
	// NoExchange excludes exchanging two names, which ZFS before 2.2 refuses (EINVAL).
	NoExchange bool
	// NoCapabilities excludes file capabilities, which ZFS leaves in place when a file is
	// written and other filesystems drop.
	NoCapabilities bool
	// NoACL excludes access control lists from the random changes.
	NoACL bool
}

// A Writer generates random scripts of changes to a file tree. It models the tree that its scripts make, so
// that each step is valid. Two writers with the same seed and powers generate the same scripts.
type Writer struct {
	powers Powers
	rand   *rand.Rand
	nodes  map[string]*node // by path, without the root
	paths  []string         // the keys of nodes, in a reproducible order
	clock  int64
	count  int
}

// A node is an inode in the model that a [Writer] of random scripts has of the tree; several paths may share
// one.
type node struct {
	op    Op // Create, Mkdir, Symlink, Fifo, Socket or Device
	size  int64
	names int
	attrs []string
	kept  bool // see Powers.KeepOldLinks
	// capable is set if the inode has, or had, a file capability.
	capable bool
}

// NewWriter returns a generator of random scripts that starts with an empty tree. seed determines all
// scripts.
func NewWriter(seed uint64, p Powers) *Writer {
	return &Writer{
		powers: p, nodes: map[string]*node{}, clock: 1_500_000_000,
		rand: rand.New(rand.NewPCG(seed, 0x5eed)),
	}
}

// Branch returns a second writer of random scripts that starts with the same model of the tree, for a tree
// that then changes separately. Both writers draw from one random source, so that the order of their calls
// matters.
func (w *Writer) Branch() *Writer {
	other := *w
	other.nodes, other.paths = map[string]*node{}, slices.Clone(w.paths)
	copies := map[*node]*node{}
	for path, n := range w.nodes {
		if copies[n] == nil {
			one := *n
			one.attrs, copies[n] = slices.Clone(n.attrs), &one
		}
		other.nodes[path] = copies[n]
	}
	return &other
}

// Script generates the next n random changes of the tree, to be made after all scripts that this writer
// generated before.
func (w *Writer) Script(n int) Script {
	s := make(Script, 0, n)
	for len(s) < n {
		step, ok := w.step()
		if !ok {
			continue
		}
		w.clock += 1 + w.rand.Int64N(1000)
		step.Time, step.Seed = w.clock, w.rand.Uint64()
		s = append(s, step)
	}
	return s
}

// Freeze notes that the tree as it is now becomes the base of a fork: with Powers.KeepOldLinks, later random
// steps change no file that has several names now.
func (w *Writer) Freeze() {
	for _, n := range w.nodes {
		n.kept = w.powers.KeepOldLinks && n.names > 1
	}
}

// Clone returns a second writer of random scripts that starts with the same model of the tree and has a
// random source of its own, from seed.
func (w *Writer) Clone(seed uint64) *Writer {
	c := NewWriter(seed, w.powers)
	copied := map[*node]*node{}
	for path, n := range w.nodes {
		if copied[n] == nil {
			d := *n
			d.attrs = append([]string(nil), n.attrs...)
			copied[n] = &d
		}
		c.nodes[path] = copied[n]
	}
	c.paths = append([]string(nil), w.paths...)
	c.clock, c.count = w.clock, w.count
	return c
}

// Deep generates a script that makes directories so deep that their path is too long for a single system
// call, with a file at the end. Later steps may use that file like any other.
func (w *Writer) Deep() Script {
	var s Script
	path := ""
	for range 18 {
		path = join(path, w.name(250))
		w.add(path, &node{op: Mkdir})
		w.clock++
		s = append(s, Step{Op: Mkdir, Path: path, Mode: 0o755, Time: w.clock})
	}
	path = join(path, w.name(10))
	w.add(path, &node{op: Create, size: 10})
	w.clock++
	return append(s, Step{Op: Create, Path: path, Size: 10, Mode: 0o644, Seed: 1, Time: w.clock})
}
