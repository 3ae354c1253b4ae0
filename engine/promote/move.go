package promote

import (
	"context"
	"errors"
	"maps"
	"os"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// move brings everything into place, op by op. The first mismatch ends it.
func (w *work) move(ctx context.Context) error {
	for _, o := range w.ops {
		if o.verb == alter {
			continue
		}
		if err := ctx.Err(); err != nil {
			return at(o.path, err)
		}
		if err := fault.Point(ctx, string(o.verb)); err != nil {
			return at(o.path, err)
		}
		if err := w.moveOne(o); err != nil {
			return at(o.path, err)
		}
	}
	return nil
}

func (w *work) moveOne(o *op) error {
	dir, name, err := w.parent(o.path)
	if err != nil {
		return err
	}
	stage := w.stages[o.stage].dir
	if o.verb != put {
		if err := w.expected(o, dir, name); err != nil {
			return err
		}
	}
	switch o.verb {
	case put:
		err = intoPlace(stage, o.name, dir, name)
	case swap:
		err = exchange(stage, o.name, dir, name)
	case drop:
		err = intoStage(dir, name, stage, o.name)
	}
	if missing(err) || errors.Is(err, unix.EEXIST) {
		return movedAway(o.path)
	}
	if err != nil {
		return err
	}
	if o.verb != drop {
		if err := fixMode(dir, name, o.new); err != nil {
			return err
		}
	}
	if o.verb == put {
		return nil
	}
	if isDir(o.seen) || shared(o.seen) { // its other names may get other attributes
		return w.displaced(o, nil)
	}
	return w.displacedNode(o, stage)
}

// displacedNode looks at once whether what came into the stage is the node that
// was expected, as it was. What cannot be told without reading it lookAgain sees.
func (w *work) displacedNode(o *op, stage *os.File) error {
	st, err := vfs.Lstat(int(stage.Fd()), o.name)
	if err == nil && !o.old.is(&st) {
		err = movedAway(o.path)
	}
	return err
}

// parent opens the directory that holds a path, which must be the one that the
// plan saw.
func (w *work) parent(path string) (*os.File, string, error) {
	parent, name := split(path)
	dir, err := w.p.places[parent].open(&w.real)
	if err == nil && dir == nil {
		err = movedAway(path)
	}
	return dir, name, err
}

// expected looks at what is about to be displaced. This alone would leave a
// gap; it catches what only the change time tells, which renaming changes.
func (w *work) expected(o *op, dir *os.File, name string) error {
	st, err := vfs.Lstat(int(dir.Fd()), name)
	if missing(err) || err == nil && !o.old.is(&st) {
		return movedAway(o.path)
	}
	if err == nil && !st.IsDir() && o.seen.NLink == 1 && !st.CTime.Time().Equal(o.seen.CTime) {
		return movedAway(o.path)
	}
	return err
}

// displaced compares what lies in the stage with what was expected. Nobody else
// can reach it there, so the answer stands, except for what has it open. Of the
// inodes in altered, other names stay in place and have got new metadata.
func (w *work) displaced(o *op, altered map[uint64]bool) error {
	stage := w.stages[o.stage].dir
	node, st, err := lookAt(stage, o.name)
	if err != nil {
		return at(o.path, err)
	}
	if altered[st.Ino] && o.old.sameNode(&st) {
		return nil
	}
	if !o.old.is(&st) || !maps.Equal(carried(node.Xattrs), carried(o.seen.Xattrs)) {
		return movedAway(o.path)
	}
	if !st.IsDir() {
		return nil
	}
	return unchanged(stage, o.name, o.path, o.olds, altered)
}

// unchanged compares all that lies beneath a directory with what is known of
// it; path is what to call it.
func unchanged(in *os.File, name, path string, known map[string]ident, altered map[uint64]bool) error {
	dir, err := openNode(in, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	found := 0
	err = walk(dir, "", func(rel string, in *os.File, name string) error {
		st, err := vfs.Lstat(int(in.Fd()), name)
		if err != nil {
			return err
		}
		if i, ok := known[rel]; !ok || !i.is(&st) && !(altered[st.Ino] && i.sameNode(&st)) {
			return movedAway(join(path, rel))
		}
		found++
		return nil
	})
	if err == nil && found < len(known) {
		err = movedAway(path)
	}
	return err
}

// rename moves a node between two open directories, with the flags of
// renameat2(2). Moving a directory writes its "..": an owner who has no right to
// write it takes the right, and fixMode gives it back.
func rename(from *os.File, old string, to *os.File, new string, flags uint) error {
	err := vfs.RenameAt(int(from.Fd()), old, int(to.Fd()), new, flags)
	if err == unix.EACCES {
		widened, other := widenDir(from, old), widenDir(to, new) // both: an exchange moves two
		if widened || other {
			err = vfs.RenameAt(int(from.Fd()), old, int(to.Fd()), new, flags)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: new, Err: err}
	}
	return nil
}

// widenDir gives the owner of a directory the right to write it, and reports
// whether that was missing and is there now.
func widenDir(in *os.File, name string) bool {
	st, err := vfs.Lstat(int(in.Fd()), name)
	if err != nil || !st.IsDir() || st.Mode&unix.S_IWUSR != 0 || int(st.UID) != os.Geteuid() {
		return false
	}
	node, err := openNode(in, name)
	if err != nil {
		return false
	}
	defer node.Close()
	return chmod(node, st.Mode&0o7777|unix.S_IWUSR) == nil
}

// fixMode gives a directory that was moved the permissions it should have.
func fixMode(in *os.File, name string, want ident) error {
	if want.mode&unix.S_IFMT != unix.S_IFDIR || want.mode&unix.S_IWUSR != 0 {
		return nil
	}
	node, err := openNode(in, name)
	if err != nil {
		return err
	}
	defer node.Close()
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil || !want.sameNode(&st) {
		return err
	}
	return chmod(node, want.mode&0o7777)
}
