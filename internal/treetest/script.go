//go:build linux

package treetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
)

// Op is what a step of a script does.
type Op string

// The operations of scripts.
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

// A Step changes a tree in one way. Paths are relative to its root.
type Step struct {
	Op       Op
	Path, To string
	// Size and Off in bytes; what is written follows from Seed.
	Size, Off int64
	Seed      uint64
	Mode      uint32
	UID, GID  int
	Dev       uint64
	Attr      string
	Value     []byte
	// Time, in seconds since 1970, becomes the modification time of each node
	// that the step changes, so that a script gives the same tree whenever it
	// is played.
	Time int64
}

func (s Step) String() string {
	str := fmt.Sprintf("%s %q", s.Op, s.Path)
	if s.To != "" {
		str += fmt.Sprintf(" %q", s.To)
	}
	return str
}

// A Script is a sequence of steps that all succeed on a tree in the state that
// the script was written for.
type Script []Step

// Play carries the script out in the directory root. It stops at the first failing step, which
// the error names.
func (s Script) Play(root *os.File) error {
	for i, step := range s {
		if err := step.play(root); err != nil {
			return fmt.Errorf("step %d, %v: %w", i, step, err)
		}
	}
	return nil
}

// Powers say what scripts may hold.
type Powers struct {
	// Root allows devices, owners, file capabilities and set-id bits.
	Root bool
	// NoDirRename leaves out what some overlays refuse (EXDEV).
	NoDirRename bool
	// ShortRenames leaves out renames and links of long paths, which overlays
	// with redirect_dir or metacopy refuse (EXDEV).
	ShortRenames bool
	// KeepOldLinks leaves nodes alone that had several names when Freeze was
	// called: overlayfs without an index parts them when they are changed.
	KeepOldLinks bool
	// NoExchange leaves out two names that change places, which ZFS before 2.2
	// refuses (EINVAL).
	NoExchange bool
	// NoCapabilities leaves out those of files, which ZFS keeps when a file is written
	// to, and others drop.
	NoCapabilities bool
	// NoACL leaves out access control lists.
	NoACL bool
}

// A Writer writes random scripts, and remembers the tree that they make so that
// each step fits. Two writers with the same seed and powers write the same.
type Writer struct {
	powers Powers
	rand   *rand.Rand
	nodes  map[string]*node // by path, without the root
	paths  []string         // the keys of nodes, in a reproducible order
	clock  int64
	count  int
}

// node is an inode in the writer's memory; several paths may share one.
type node struct {
	op    Op // Create, Mkdir, Symlink, Fifo, Socket or Device
	size  int64
	names int
	attrs []string
	kept  bool // see Powers.KeepOldLinks
	// capable: it has, or had, a file capability.
	capable bool
}

// NewWriter begins with an empty tree.
func NewWriter(seed uint64, p Powers) *Writer {
	return &Writer{
		powers: p, nodes: map[string]*node{}, clock: 1_500_000_000,
		rand: rand.New(rand.NewPCG(seed, 0x5eed)),
	}
}

// Branch is a writer for another tree, which is as this writer's is now. They draw from one source.
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

// Script writes n more steps, to be played after all scripts written before.
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

// Freeze says that the tree as it is now becomes a base.
func (w *Writer) Freeze() {
	for _, n := range w.nodes {
		n.kept = w.powers.KeepOldLinks && n.names > 1
	}
}

// Clone makes a writer that goes on from the same tree, with another seed.
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

// Deep writes a script that makes a path too long for any one system call, with
// a file at its end. The steps that follow may use it like any other.
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
