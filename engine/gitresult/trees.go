package gitresult

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/internal/gitrepo"
)

// An objects reads git objects from the real repository and from the sandbox's, and holds in memory those
// that the plan of a promotion creates.
type objects struct {
	real, mine *gitrepo.Repo
	made       map[gitrepo.ID]gitrepo.Object
}

// read returns a git object of the given kind: one that the plan of the promotion created, else the real
// repository's, else the sandbox's.
func (o *objects) read(id gitrepo.ID, kind gitrepo.Kind) (gitrepo.Object, error) {
	if made, ok := o.made[id]; ok {
		return made, nil
	}
	got, err := o.real.Object(id, kind)
	if errors.Is(err, fs.ErrNotExist) {
		return o.mine.Object(id, kind)
	}
	return got, err
}

func (o *objects) commit(id gitrepo.ID) (*gitrepo.CommitData, error) {
	got, err := o.read(id, gitrepo.Commit)
	if err != nil {
		return nil, err
	}
	return gitrepo.ParseCommit(got.Data, false)
}

// tree returns the entries of the git tree with this id, by name. The zero id, for no tree, has none.
func (o *objects) tree(id gitrepo.ID) (map[string]gitrepo.TreeEntry, error) {
	all := map[string]gitrepo.TreeEntry{}
	if id.Zero() {
		return all, nil
	}
	got, err := o.read(id, gitrepo.Tree)
	if err != nil {
		return nil, err
	}
	list, err := gitrepo.ParseTree(got.Data)
	for _, e := range list {
		all[e.Name] = e
	}
	return all, err
}

func (o *objects) add(kind gitrepo.Kind, data []byte) gitrepo.ID {
	got := gitrepo.Object{Kind: kind, Data: data}
	id := got.ID()
	o.made[id] = got
	return id
}

// A treeChange is a path at which two git trees have different files, with the entry of each.
// [objects.differences] makes it.
type treeChange struct {
	path     string
	old, new gitrepo.TreeEntry // the zero entry for none
}

// differences lists the paths of files at which the git trees a and b differ. The paths begin with dir.
func (o *objects) differences(a, b gitrepo.ID, dir string) (all []treeChange, err error) {
	if a == b {
		return nil, nil
	}
	old, err := o.tree(a)
	if err != nil {
		return nil, err
	}
	now, err := o.tree(b)
	if err != nil {
		return nil, err
	}
	for _, name := range names(old, now) {
		x, y := old[name], now[name]
		if x == y {
			continue
		}
		var sub [2]gitrepo.ID
		for i, e := range []*gitrepo.TreeEntry{&x, &y} {
			if e.Mode == gitrepo.ModeDir {
				sub[i], *e = e.ID, gitrepo.TreeEntry{}
			}
		}
		at := path.Join(dir, name)
		if x != y {
			all = append(all, treeChange{at, x, y})
		}
		inside, err := o.differences(sub[0], sub[1], at)
		if err != nil {
			return nil, err
		}
		all = append(all, inside...)
	}
	return all, nil
}

func names(maps ...map[string]gitrepo.TreeEntry) (all []string) {
	for _, m := range maps {
		for name := range m {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// asChanges returns the differences of two git trees in the form of package diff. So package approval can
// list those that the user must approve.
func (o *objects) asChanges(all []treeChange) (changes []diff.Change, err error) {
	node := func(e gitrepo.TreeEntry) *diff.Node {
		switch e.Mode {
		case 0:
			return nil
		case gitrepo.ModeSymlink:
			target, failed := o.read(e.ID, gitrepo.Blob)
			err = cmp.Or(err, failed)
			return &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: string(target.Data)}
		case gitrepo.ModeExec:
			return &diff.Node{Mode: 0o755}
		case gitrepo.ModeModule:
			return &diff.Node{Mode: fs.ModeDir | 0o755}
		}
		return &diff.Node{Mode: 0o644}
	}
	for _, t := range all {
		c := diff.Change{Path: t.path, Kind: diff.Modified, What: diff.Content, Old: node(t.old), New: node(t.new)}
		switch {
		case c.Old == nil:
			c.Kind, c.What = diff.Added, 0
		case c.New == nil:
			c.Kind, c.What = diff.Deleted, 0
		}
		changes = append(changes, c)
	}
	return changes, err
}

// mergeTrees merges the git trees ours and theirs, three-way with base: by name, and by lines in files that
// both changed. It returns the id of the new tree. conflicts are the paths that it cannot merge, which begin
// with dir.
func (o *objects) mergeTrees(base, ours, theirs gitrepo.ID, dir string) (id gitrepo.ID, conflicts []string, err error) {
	var in [3]map[string]gitrepo.TreeEntry
	for i, id := range []gitrepo.ID{base, ours, theirs} {
		if in[i], err = o.tree(id); err != nil {
			return id, nil, err
		}
	}
	var list []gitrepo.TreeEntry
	for _, name := range names(in[0], in[1], in[2]) {
		e, inside, err := o.mergeEntry(in[0][name], in[1][name], in[2][name], path.Join(dir, name))
		if err != nil {
			return id, nil, err
		}
		conflicts = append(conflicts, inside...)
		if e.Mode != 0 {
			list = append(list, e)
		}
	}
	if len(list) == 0 && dir != "" {
		return gitrepo.ID{}, conflicts, nil
	}
	slices.SortFunc(list, func(a, b gitrepo.TreeEntry) int { return strings.Compare(sortKey(a), sortKey(b)) })
	return o.add(gitrepo.Tree, gitrepo.TreeText(list)), conflicts, nil
}

func sortKey(e gitrepo.TreeEntry) string {
	if e.Mode == gitrepo.ModeDir {
		return e.Name + "/"
	}
	return e.Name
}

func (o *objects) mergeEntry(b, x, y gitrepo.TreeEntry, at string) (e gitrepo.TreeEntry, conflicts []string, err error) {
	switch {
	case x == y, b == y:
		return x, nil, nil
	case b == x:
		return y, nil, nil
	}
	dirOrNone := func(e gitrepo.TreeEntry) bool { return e.Mode == gitrepo.ModeDir || e.Mode == 0 }
	switch {
	case dirOrNone(b) && dirOrNone(x) && dirOrNone(y):
		id, conflicts, err := o.mergeTrees(b.ID, x.ID, y.ID, at)
		if err != nil || id.Zero() {
			return e, conflicts, err
		}
		return gitrepo.TreeEntry{Mode: gitrepo.ModeDir, Name: path.Base(at), ID: id}, conflicts, nil
	case isFile(b) && isFile(x) && isFile(y):
		return o.mergeFile(b, x, y, at)
	}
	return x, []string{at}, nil
}

func isFile(e gitrepo.TreeEntry) bool { return e.Mode&0o170000 == 0o100000 }

func (o *objects) mergeFile(b, x, y gitrepo.TreeEntry, at string) (e gitrepo.TreeEntry, conflicts []string, err error) {
	e = x
	if b.Mode == x.Mode {
		e.Mode = y.Mode
	}
	switch {
	case x.ID == y.ID, b.ID == y.ID:
		return e, nil, nil
	case b.ID == x.ID:
		e.ID = y.ID
		return e, nil, nil
	}
	var text [3][]byte
	for i, id := range []gitrepo.ID{b.ID, x.ID, y.ID} {
		got, err := o.read(id, gitrepo.Blob)
		if err != nil {
			return e, nil, err
		}
		text[i] = got.Data
		if len(got.Data) > merge.TextMax || bytes.IndexByte(got.Data, 0) >= 0 {
			return e, []string{at}, nil
		}
	}
	merged, n := merge.Text(text[0], text[1], text[2], merge.Names{})
	if n > 0 {
		return e, []string{at}, nil
	}
	e.ID = o.add(gitrepo.Blob, merged)
	return e, nil, nil
}
