package layer

import (
	"context"
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// A Borrowed is a node that was changed, and is read from the tree below all the same, from where it is not
// named any more.
type Borrowed struct {
	// Path is where it is now, From where the tree below has it. Of a file that was renamed away
	// from one of several names, of which nobody knows the others, they are the same.
	Path, From string
	Dir        bool
}

// FindBorrowed answers with those of the layers of o, but for what is where it belongs in a directory that
// is borrowed. A file that was changed in part is one even where it has its name. Cost: in proportion to
// what was changed in the layers. Errors are those of [Open].
func FindBorrowed(o Options) (list []Borrowed, err error) {
	f, err := table(o)
	if err != nil {
		return nil, err
	}
	defer f.release()
	a := newAtlas(f)
	for _, n := range f.nodes {
		if n == f.root || n.from == nil || !n.changed || n.nlink == 0 {
			continue
		}
		from, names := n.from.path(), a.paths(n)
		switch {
		case n.isDir():
			if len(names) > 0 && !a.natural(n) {
				list = append(list, Borrowed{names[0], from, true})
			}
		case n.borrows():
			if n.parts != nil || !slices.Contains(names, from) {
				list = append(list, Borrowed{append(names, from)[0], from, false})
			}
		}
	}
	return list, nil
}

// natural reports whether a directory has the name, in the directory, that the tree below has for it.
func (a *atlas) natural(n *node) bool {
	for _, k := range a.above[n] {
		if k.dir.from == nil || path.Join(k.dir.from.path(), k.name) != n.from.path() {
			return false
		}
	}
	return true
}

// borrows reports whether the tree below has content of a file.
func (n *node) borrows() bool {
	return n.regular() && (n.place == below || n.parts != nil && n.parts.beneath[len(n.parts.beneath)-1].place == below)
}

// Raise brings up, in full, what the tree below has at these places and is in the table: content, and all that lies in a
// directory, which is none of the tree below from then on. What the tree has no more is left as it is. Nobody
// may have the filesystem mounted. What was done before an error stays, and changes nothing of what is shown.
func (f *FS) Raise(ctx context.Context, places map[string]bool) error {
	f.whole = everything
	f.raising = true
	f.mu.RLock()
	var all []*node
	for _, n := range f.nodes {
		if n.changed && n.nlink > 0 && n.from != nil && n != f.root && places[n.from.path()] {
			all = append(all, n)
		}
	}
	f.mu.RUnlock()
	r := raiser{FS: f, ctx: ctx}
	for _, n := range all {
		if _, err := r.up(n); err != nil {
			return err
		}
	}
	r.apart()
	return nil
}

// A raiser brings up what the tree below has.
type raiser struct {
	*FS
	ctx context.Context
	// linked are files with several names that were not changed before.
	linked []*node
}

// up brings up a node with all that lies in it, and says whether it could: false, where the tree below
// has something of it no more.
func (f *raiser) up(n *node) (whole bool, err error) {
	if err := f.ctx.Err(); err != nil {
		return false, err
	}
	f.mu.Lock()
	err = f.change(n)
	f.mu.Unlock()
	switch {
	case err != nil:
	case n.isDir():
		return f.dir(n)
	case n.borrows():
		err = f.content(n)
	}
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	return err == nil, err
}

// content makes the content of a file the top layer's.
func (f *raiser) content(n *node) error {
	if top := f.top(); n.place != top {
		if err := f.bring(n, top, everything); err != nil {
			return err
		}
	}
	p := n.parts
	if p == nil {
		return nil
	}
	return f.own(n, everything, func(fd int) error {
		reserved, err := f.copyAll(fd, n, p, min(n.size, p.shown()))
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		n.parts = nil
		f.recount(n, fd, reserved)
		return f.change(n)
	})
}

// dir names all that the tree below has in a directory, and then leaves that.
func (f *raiser) dir(n *node) (whole bool, err error) {
	if n.from == nil {
		return true, nil
	}
	list, err := f.listBelow(n)
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	whole = true
	for _, e := range list {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		one, err := f.name(n, e.Name)
		if err != nil {
			return false, err
		}
		whole = whole && one
	}
	if !whole {
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fds.drop(dirKey(n.from))
	n.from = nil
	return true, f.change(n)
}

// name names in a directory what the tree below has there under a name, and brings it up.
func (f *raiser) name(dir *node, name string) (whole bool, err error) {
	f.mu.Lock()
	n, err := f.find(dir, name)
	if err == nil && n != nil && n.from != nil {
		if !n.changed && n.regular() && n.nlink > 1 {
			f.linked = append(f.linked, n)
		}
		err = f.change(n)
	}
	if _, named := dir.entries[name]; err == nil && n != nil && !named {
		f.put(dir, name, n)
	}
	f.mu.Unlock()
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	if err != nil || n == nil || n.from == nil || n.isDir() && n.from.dir != dir.from && n.from.dir.path() != dir.from.path() {
		return err == nil, err // hidden, or made above, or another one that was renamed to here
	}
	return f.up(n)
}

// apart takes files that have names elsewhere too, of which nobody knows, apart from these: where what was raised is carried
// to, they are another file.
func (f *raiser) apart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[*node]uint32{}
	for _, n := range f.linked {
		names[n] = 0
	}
	for _, dir := range f.nodes {
		for _, n := range dir.entries {
			if _, linked := names[n]; linked {
				names[n]++
			}
		}
	}
	for n, have := range names {
		if have < n.nlink && !n.borrows() {
			n.from, n.nlink = nil, have
			f.mark(n)
		}
	}
}
