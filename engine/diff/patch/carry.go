package patch

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/kernel"
)

// carryOut makes the changes, and takes them back where one cannot be made.
func (a *applier) carryOut() (err error) {
	defer a.back.UndoInto(&err)
	a.back.Push("give the directories their times", func() error { return a.giveTimes(a.times) })
	for _, step := range []func() error{a.makeStage, a.build, a.clear, a.place, a.link, a.describe, a.finish} {
		if err := step(); err != nil {
			return err
		}
	}
	a.back.Release()
	return failed("", errors.Join(a.removeStage(), a.giveTimes(map[string]kernel.Timestamp{".": a.newTimes()["."]})))
}

// makeStage makes the directory in which everything is built.
func (a *applier) makeStage() error {
	a.name = ".snapfs-apply-" + rand.Text()
	if err := unix.Mkdirat(a.root, a.name, 0o700); err != nil {
		return failed(a.name, err)
	}
	a.back.Push("remove "+a.name, a.removeStage)
	stage, err := kernel.OpenDir(a.root, a.name)
	if err != nil {
		return failed(a.name, err)
	}
	a.stage = stage
	return nil
}

// removeStage removes it with what was replaced: directories in it are empty.
func (a *applier) removeStage() error {
	if a.stage == nil {
		return unix.Unlinkat(a.root, a.name, unix.AT_REMOVEDIR)
	}
	defer a.stage.Close()
	list, err := kernel.Entries(int(a.stage.Fd()))
	errs := []error{err}
	for _, e := range list {
		err := unix.Unlinkat(int(a.stage.Fd()), e.Name, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(int(a.stage.Fd()), e.Name, unix.AT_REMOVEDIR)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, unix.Unlinkat(a.root, a.name, unix.AT_REMOVEDIR))...)
}

// each calls f for the records that it is for, in order or the other way round.
func (a *applier) each(step string, backwards bool, f func(i int, r *record) error) error {
	for n := range a.records {
		i := n
		if backwards {
			i = len(a.records) - 1 - n
		}
		r := &a.records[i]
		err := a.ctx.Err()
		if err == nil {
			err = fault.Point(a.ctx, step+" "+string(r.Path))
		}
		if err == nil {
			err = f(i, r)
		}
		if err != nil {
			return failed(string(r.Path), err)
		}
	}
	return nil
}

// fresh reports whether a record makes a node of its own.
func (a *applier) fresh(r *record) bool {
	switch {
	case r.New == nil, r.New.is(typeDir), r.New.LinkOf != "":
		return false
	case r.Old == nil, r.Old.Mode&typeMask != r.New.Mode&typeMask, r.New.ID != "":
		return true
	}
	return r.Old.Target != r.New.Target || r.Old.Rdev != r.New.Rdev || a.seen[string(r.Path)].links > 1
}

// stands reports whether a node stays where it is and is described anew.
func (a *applier) stands(r *record) bool {
	return r.Old != nil && r.New != nil && !a.fresh(r) && r.New.LinkOf == "" && r.Old.is(typeDir) == r.New.is(typeDir)
}

func staged(i int) string { return fmt.Sprint("new-", i) }

// build builds every new node, as it will be.
func (a *applier) build() error {
	return a.each("build", false, func(i int, r *record) error {
		if !a.fresh(r) {
			return nil
		}
		f, err := a.node(i, r)
		if err != nil {
			return err
		}
		defer f.Close()
		return describe(f, r.New)
	})
}

func (a *applier) node(i int, r *record) (*os.File, error) {
	stage := int(a.stage.Fd())
	var err error
	switch {
	case r.New.is(typeFile):
		return a.file(i, r)
	case r.New.is(typeLink):
		err = unix.Symlinkat(string(r.New.Target), stage, staged(i))
	default:
		err = kernel.MakeNode(stage, staged(i), uint32(r.New.Mode&typeMask)|0o600, r.New.Rdev)
	}
	if err != nil {
		return nil, err
	}
	return kernel.OpenBeneath(stage, staged(i), kernel.OPath|unix.O_NOFOLLOW, 0)
}

func (a *applier) file(i int, r *record) (*os.File, error) {
	f, err := kernel.OpenBeneath(int(a.stage.Fd()), staged(i), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	var base *os.File
	if !r.Empty {
		from := r.Path
		if r.From != "" {
			from = r.From
		}
		if base, err = a.openFile(from); err == nil {
			defer base.Close()
		}
	}
	if err == nil {
		err = a.script.build(a.ctx, r, base, f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// clear moves aside what goes, the deepest first.
func (a *applier) clear() error {
	return a.each("clear", true, func(i int, r *record) error {
		if r.Old == nil || r.New != nil && r.Old.is(typeDir) == r.New.is(typeDir) {
			return nil
		}
		aside := fmt.Sprint("old-", i)
		if err := a.move(r.Path, aside, false, 0); err != nil {
			return err
		}
		a.back.Push("put it back: "+string(r.Path), func() error { return a.move(r.Path, aside, true, 0) })
		return a.recognise(r, aside)
	})
}

// move moves a path to the stage, or back, or exchanges the two.
func (a *applier) move(path raw, aside string, back bool, flags uint) error {
	dir, name, err := a.parent(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	stage, at := int(a.stage.Fd()), int(dir.Fd())
	if flags == 0 {
		flags = kernel.RenameNoReplace
	}
	if back {
		return kernel.RenameAt(stage, aside, at, name, flags)
	}
	return kernel.RenameAt(at, name, stage, aside, flags)
}

// A glimpse is what is remembered of a node that was compared.
type glimpse struct {
	ino, dev uint64
	size     int64
	mtime    kernel.Timestamp
	links    uint32
	dir      bool
}

func glimpseOf(st *kernel.Stat) glimpse {
	return glimpse{st.Ino, st.Dev, st.Size, st.MTime, st.Nlink, st.IsDir()}
}

// recognise makes sure that what was moved aside is what had been compared.
func (a *applier) recognise(r *record, aside string) error {
	st, err := kernel.Lstat(int(a.stage.Fd()), aside)
	if err != nil {
		return err
	}
	was, is := a.seen[string(r.Path)], glimpseOf(&st)
	if was.dir && is.dir { // its names have gone, and its time with them
		was, is = glimpse{ino: was.ino, dev: was.dev}, glimpse{ino: is.ino, dev: is.dev}
	}
	was.links, is.links = 0, 0
	if was != is {
		return unlike(r.Path, "it has changed meanwhile")
	}
	return nil
}

// place makes directories and moves the new nodes to their places, parents first.
func (a *applier) place() error {
	return a.each("place", false, func(i int, r *record) error {
		switch {
		case a.made[string(r.Path)]:
			return a.mkdir(r)
		case a.fresh(r):
			return a.put(i, r)
		}
		return nil
	})
}

func (a *applier) mkdir(r *record) error {
	dir, name, err := a.parent(r.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return err
	}
	a.back.Push("remove "+string(r.Path), func() error {
		dir, name, err := a.parent(r.Path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	})
	return nil
}

// put moves a staged node to its place; what is there changes places with it.
func (a *applier) put(i int, r *record) error {
	flags := uint(0)
	if r.Old != nil && !r.Old.is(typeDir) {
		flags = kernel.RenameExchange
	}
	if err := a.move(r.Path, staged(i), true, flags); err != nil {
		return err
	}
	a.back.Push("put the old one back: "+string(r.Path), func() error { return a.move(r.Path, staged(i), false, flags) })
	if flags != 0 {
		return a.recognise(r, staged(i))
	}
	return nil
}

// link makes hard links of what is in its place by now.
func (a *applier) link() error {
	return a.each("link", false, func(i int, r *record) error {
		if r.New == nil || r.New.LinkOf == "" {
			return nil
		}
		dir, name, err := a.parent(r.New.LinkOf)
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := unix.Linkat(int(dir.Fd()), name, int(a.stage.Fd()), staged(i), 0); err != nil {
			return err
		}
		return a.put(i, r)
	})
}

// describe gives what stays in its place, and new directories, their modes and
// all else.
func (a *applier) describe() error {
	return a.each("describe", false, func(_ int, r *record) error {
		if !a.stands(r) && !a.made[string(r.Path)] {
			return nil
		}
		f, err := a.open(r.Path, kernel.OPath)
		if err != nil {
			return err
		}
		defer f.Close()
		was, err := factsAt(f)
		if err != nil {
			return err
		}
		a.back.Push("describe it as it was: "+string(r.Path), func() error {
			f, err := a.open(r.Path, kernel.OPath)
			if err != nil {
				return err
			}
			defer f.Close()
			return describe(f, was)
		})
		return describe(f, r.New)
	})
}

// finish gives directories their times, when nothing in them changes any more.
func (a *applier) finish() error { return failed("", a.giveTimes(a.newTimes())) }

// newTimes are the times that directories have in the new tree: those that the
// patch tells, and their old ones.
func (a *applier) newTimes() map[string]kernel.Timestamp {
	times := maps.Clone(a.times)
	for i := range a.records {
		r := &a.records[i]
		said := r.Time
		switch {
		case r.New.is(typeDir):
			said = r.New.MTime
		case r.Old != nil || r.New != nil:
			delete(times, string(r.Path))
			continue
		}
		if t, err := said.time(); err == nil { // which was checked
			times[string(r.Path)] = t
		}
	}
	return times
}
