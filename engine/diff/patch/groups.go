package patch

import (
	"errors"
	"io/fs"
	"path"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/kernel"
)

type inode struct{ dev, ino uint64 }

// A group is the names of one node in the new tree.
type group struct {
	leader string
	names  uint32 // found so far
	count  uint32 // there should be
}

// leaders says, of each changed path that has several names in the new tree, of
// which one it is a link: one that did not change where there is one, else the
// first. Only where names are missing among the changes is the new tree walked.
func (p *printer) leaders(changes []diff.Change) (map[string]string, error) {
	groups := map[inode]*group{}
	missing := 0
	changed := map[string]bool{}
	for _, c := range changes {
		changed[c.Path] = true
		if c.New == nil || c.New.Mode.IsDir() || c.New.NLink < 2 {
			continue
		}
		id := inode{c.New.Dev, c.New.Ino}
		g := groups[id]
		if g == nil {
			g = &group{leader: c.Path, count: c.New.NLink}
			groups[id] = g
			missing++
		}
		if g.names++; g.names == g.count {
			missing--
		}
	}
	if missing > 0 {
		s := search{p, groups, changed, missing}
		if err := s.dir(int(p.root[1].Fd()), "."); err != nil && !errors.Is(err, errAll) {
			return nil, err
		}
	}
	leaders := map[string]string{}
	for _, c := range changes {
		if c.New == nil {
			continue
		}
		leaders[c.Path] = c.Path
		if g := groups[inode{c.New.Dev, c.New.Ino}]; g != nil && !c.New.Mode.IsDir() {
			leaders[c.Path] = g.leader
		}
	}
	return leaders, nil
}

// A search walks the new tree for names that did not change.
type search struct {
	*printer
	groups  map[inode]*group
	changed map[string]bool
	missing int
}

var errAll = errors.New("all are found")

func (s *search) dir(fd int, at string) error {
	list, err := kernel.Entries(fd)
	if err != nil {
		return s.fail(at, err)
	}
	kernel.SortEntries(list)
	for _, e := range list {
		if err := s.ctx.Err(); err != nil {
			return s.fail(at, err)
		}
		here := path.Join(at, e.Name)
		st, err := kernel.Lstat(fd, e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s.fail(here, err)
		}
		if err := s.node(fd, e.Name, here, &st); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) node(fd int, name, here string, st *kernel.Stat) error {
	if st.IsDir() {
		dir, err := kernel.OpenDir(fd, name)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return s.fail(here, err)
		}
		defer dir.Close()
		return s.dir(int(dir.Fd()), here)
	}
	g := s.groups[inode{st.Dev, st.Ino}]
	if g == nil || s.changed[here] {
		return nil
	}
	if s.changed[g.leader] {
		g.leader = here
	}
	if g.names++; g.names == g.count {
		s.missing--
	}
	if s.missing == 0 {
		return errAll
	}
	return nil
}
