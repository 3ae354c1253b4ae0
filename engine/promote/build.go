package promote

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// This file builds new versions in the stages.

// A location says where the first node of several hard links was built, so that the other names can be linked
// to it: which stage (a private directory for new versions) and the path in it.
type location struct {
	stage int
	path  string // in the stage
}

// builders is the number of new files that a promotion builds at once. Building mostly waits for locks of the
// filesystem, not for the disk, so more would not help.
const builders = 2

// syncEvery is the number of new files built after which a promotion starts to write them to disk, while it
// builds more. Only tests change it.
var syncEvery = 2500

// build builds the new versions of all changed files beside the target: single files first, on several
// threads, then those with hard links or subtrees.
func (w *work) build(ctx context.Context) error {
	var next atomic.Int64
	var failures [builders]error
	var synced error // or the error of a sync
	var all sync.WaitGroup
	var syncing atomic.Bool
	for n := range min(builders, len(w.ops)) {
		all.Go(func() {
			for failures[n] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(w.ops) {
					return
				}
				if i%syncEvery == syncEvery-1 && syncing.CompareAndSwap(false, true) {
					all.Go(func() {
						defer syncing.Store(false)
						synced = errors.Join(synced, w.syncWritten())
					})
				}
				w.ops[i].name = strconv.Itoa(i)
				if w.ops[i].standalone() {
					failures[n] = w.buildOne(ctx, w.ops[i])
				}
			}
		})
	}
	all.Wait()
	for _, err := range append(failures[:], synced) {
		if err != nil {
			return err
		}
	}
	for _, o := range w.ops {
		if o.standalone() || o.verb == alter || o.verb == drop {
			continue
		}
		if err := w.buildOne(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// standalone reports whether this step of a promotion needs only one new file, no directory, that has only one name.
// Such files depend on no other, so that several threads can build them.
func (o *op) standalone() bool {
	return (o.verb == put || o.verb == swap) && !o.change.New.IsDir() && !o.change.New.Shared()
}

func (w *work) buildOne(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return at(o.path, err)
	}
	if err := fault.Point(ctx, "build a new version"); err != nil {
		return at(o.path, err)
	}
	return at(o.path, w.buildOp(ctx, o))
}

// buildOp builds the new version for one step of a promotion, with everything below it, in the step's stage,
// a private directory beside the target. It stores in o how the new nodes are identified later.
func (w *work) buildOp(ctx context.Context, o *op) error {
	if o.standalone() {
		if built, i := w.buildSmall(w.stages[o.stage], o.name, &o.change); built {
			o.new = i
			return nil
		}
	}
	in := nodes.Dirs{Root: w.stages[o.stage].dir}
	defer in.Close()
	if err := w.buildNode(&in, o.stage, o.name, &o.change, o.source); err != nil {
		return err
	}
	for i := range o.additions {
		c := &o.additions[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		name := o.name + c.Path[len(o.path):]
		if err := w.buildNode(&in, o.stage, name, c, w.p.anchors[class(c)]); err != nil {
			return at(c.Path, err)
		}
	}
	// Building in a directory changes its time: set metadata from the bottom up.
	for i := len(o.additions) - 1; i >= 0; i-- {
		c := &o.additions[i]
		st, err := finish(&in, o.name+c.Path[len(o.path):], c.New)
		if err != nil {
			return at(c.Path, err)
		}
		o.newTree[relative(c.Path, o.path)] = nodes.IdentOf(&st)
	}
	st, err := finish(&in, o.name, o.change.New)
	o.new = nodes.IdentOf(&st)
	return err
}

func relative(path, dir string) string { return path[len(dir)+1:] }

// finish sets the metadata of n on the newly built node at path if that is a directory, because building
// entries in it changes its time. It returns the node's attributes.
func finish(in *nodes.Dirs, path string, n *diff.Node) (vfs.Stat, error) {
	if n.Mode.IsDir() {
		dir, err := in.Dir(path)
		if err != nil {
			return vfs.Stat{}, err
		}
		if err := nodes.MetaOf(n, nodes.Everything).Set(dir); err != nil {
			return vfs.Stat{}, err
		}
		in.Close() // its new mode may deny access to its owner
	}
	return in.Stat(path)
}

// buildNode builds the new node of a change at a path of a stage, a private directory of the promotion. It
// makes a hard link if anchor, a file of the target, or an earlier new node allows that. A directory gets its
// metadata later, once it is complete.
func (w *work) buildNode(in *nodes.Dirs, stage int, path string, c *diff.Change, anchor string) error {
	dir, name, err := in.At(path)
	if err != nil {
		return err
	}
	if c.New.Mode.IsDir() {
		return nodes.PathError("mkdir", path, unix.Mkdirat(int(dir.Fd()), name, 0o700))
	}
	k := class(c)
	if k != "" {
		if linked, err := w.buildLink(dir, name, stage, k, anchor); linked || err != nil {
			return err
		}
		w.built[k] = location{stage, path}
	}
	if c.New.Mode.IsRegular() {
		return w.copyFile(dir, name, c)
	}
	if err := create(dir, name, c); err != nil {
		return err
	}
	node, err := nodes.Open(dir, name)
	if err != nil {
		return err
	}
	defer node.Close()
	return nodes.MetaOf(c.New, nodes.Everything).Set(node)
}

// buildLink makes name in dir, in the stage with this index, a hard link of anchor, a file of the target or "", or of
// the first node built in that stage for the same file k. It returns false if there is neither, or if no link is
// possible.
func (w *work) buildLink(dir *os.File, name string, stage int, k, anchor string) (bool, error) {
	if anchor != "" {
		from, base, err := w.real.At(anchor)
		if err != nil {
			return false, err
		}
		err = unix.Linkat(int(from.Fd()), base, int(dir.Fd()), name, 0)
		return err != unix.EXDEV && err != unix.EMLINK, pathErrorBut("link", anchor, err, unix.EXDEV, unix.EMLINK)
	}
	first, ok := w.built[k]
	if !ok || first.stage != stage {
		return false, nil
	}
	in := nodes.Dirs{Root: w.stages[stage].dir}
	defer in.Close()
	from, base, err := in.At(first.path)
	if err != nil {
		return false, err
	}
	err = unix.Linkat(int(from.Fd()), base, int(dir.Fd()), name, 0)
	return err != unix.EMLINK, pathErrorBut("link", first.path, err, unix.EMLINK)
}

// create makes the new node of the change c, a symbolic link, pipe or device, as name in dir, with default
// metadata.
func create(dir *os.File, name string, c *diff.Change) error {
	fd := int(dir.Fd())
	switch n := c.New; n.Mode.Type() {
	case fs.ModeSymlink:
		return nodes.PathError("symlink", c.Path, unix.Symlinkat(n.Target, fd, name))
	case fs.ModeNamedPipe:
		return nodes.PathError("mkfifo", c.Path, vfs.MakeNode(fd, name, unix.S_IFIFO|0o600, 0))
	case fs.ModeDevice:
		return nodes.PathError("mknod", c.Path, vfs.MakeNode(fd, name, unix.S_IFBLK|0o600, n.Rdev))
	case fs.ModeDevice | fs.ModeCharDevice:
		return nodes.PathError("mknod", c.Path, vfs.MakeNode(fd, name, unix.S_IFCHR|0o600, n.Rdev))
	}
	return &errs.Error{Op: doing, Path: pathlist.Printable(c.Path), Kind: errs.ErrNotSupported, Err: errors.New("a file of unknown type")}
}

// copyFile copies a regular file from the sandbox to name in dir, a private directory of the promotion, with its final
// metadata. ErrConflict: the file in the sandbox does not match its change, before or after the copy.
func (w *work) copyFile(dir *os.File, name string, c *diff.Change) error {
	from, path := w.from.At(c.Path)
	src, err := nodes.OpenRegular(from, path)
	if nodes.Missing(err) || errors.Is(err, nodes.ErrNotRegular) {
		return sourceChanged(c.Path)
	}
	if err != nil {
		return err
	}
	defer src.Close()
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		uint32(c.New.Mode.Perm())|0o600)
	if err != nil {
		return nodes.PathError("create", c.Path, err)
	}
	dst := os.NewFile(uintptr(fd), c.Path)
	defer dst.Close()
	if !w.from.matches(src, c) { // a large copy would be wasted
		return sourceChanged(c.Path)
	}
	if _, err := vfs.CopyFile(dst, src); err != nil {
		return err
	}
	if !w.from.matches(src, c) {
		return sourceChanged(c.Path)
	}
	m := nodes.MetaOf(c.New, nodes.Everything)
	if len(m.Xattrs) == 0 {
		m.What &^= diff.Xattrs // the copy has none either: the stage has no default ACL
	}
	return m.Set(dst)
}

func sourceChanged(path string) error {
	return &errs.Error{
		Op: doing, Path: pathlist.Printable(path), Kind: errs.ErrConflict,
		Err: errors.New("changed in the sandbox since it was compared; apply again"),
	}
}

// pathErrorBut adds the operation and the path to err, but returns nil for the error numbers in
// but.
func pathErrorBut(op, path string, err error, but ...unix.Errno) error {
	for _, b := range but {
		if errors.Is(err, b) {
			return nil
		}
	}
	return nodes.PathError(op, path, err)
}
