package layer

import (
	"path"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
)

// Compare calls report with each path at which two stacks of layers over one lower directory tree may differ;
// tree means that everything below the path may differ. It misses no difference, except at hard links of a
// changed file that [lower.LinkSearch] does not find. The oldest inA layers of a and inB layers of b together
// have the same effect, so that it reports nothing for what only they changed. Cost: in proportion to the
// changes in all layers; if they changed a file with several hard links, also that search. Errors are those of
// [Open], and of report.
func Compare(a, b Options, inA, inB int, report func(path string, tree bool) error) error {
	t := comparison{logfile.NewMentions(), report}
	for _, stack := range [][]string{a.Layers[inA:], b.Layers[inB:]} {
		for _, l := range stack {
			if err := t.Add(l); err != nil {
				return err
			}
		}
	}
	var stacks [2]*pathIndex
	for i, stack := range []Options{a, b} {
		f, err := openTables(stack)
		if err != nil {
			return err
		}
		defer f.release()
		stacks[i] = newPathIndex(f)
	}
	return t.reportPaths(stacks)
}

// openTables opens the layers of o read-only, for [Compare], which compares two states. The caller closes it.
func openTables(o Options) (*FS, error) {
	o.ReadOnly = true
	if len(o.Layers) > 0 {
		return Open(o)
	}
	return openRoot(o)
}

// A comparison is the state of one [Compare]: the inodes and names that the logs of some layers record.
type comparison struct {
	logfile.Mentions
	report func(path string, tree bool) error
}

// reportPaths calls report with every path that the collected inodes and names have in one of the stacks.
func (t *comparison) reportPaths(stacks [2]*pathIndex) error {
	for b := range t.Names {
		x, y := stacks[0].f.inodes[b.Dir], stacks[1].f.inodes[b.Dir]
		same := sameEntry(x, y, b.Name)
		for i, dir := range []*inode{x, y} {
			if dir == nil {
				continue
			}
			if at, ok := stacks[i].dirPath(dir); ok {
				if err := t.report(path.Join(at, b.Name), !same); err != nil {
					return err
				}
			}
		}
	}
	links := lower.NewLinkSearch(stacks[0].f.lower, func(name *lower.Ref) error {
		for _, view := range stacks {
			if at, ok := view.lowerPath(name); ok {
				if err := t.report(at, false); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for id := range t.Inodes {
		for _, view := range stacks {
			n := view.f.inodes[id]
			if n == nil {
				continue
			}
			paths := view.paths(n)
			for _, p := range paths {
				if err := t.report(p, false); err != nil {
					return err
				}
			}
			if missing := int(n.nlink) - len(paths); missing > 0 && !n.isDir() && n.lower != nil {
				if _, err := links.Want(n.lower, missing); err != nil {
					return err
				}
			}
		}
	}
	return links.Run()
}

// sameEntry reports whether name leads to the same inode in x and y, two states of one directory, so that at
// most that inode itself differs. It compares inode numbers only of lower inodes, because two stacks of
// layers may have used the number of a new inode for different files.
func sameEntry(x, y *inode, name string) bool {
	if x != nil && y != nil && x.entries[name] != nil && y.entries[name] != nil && x.entries[name].id < logfile.FirstOwnIno {
		return x.entries[name].id == y.entries[name].id
	}
	return x.nameUnchanged(y, name) && y.nameUnchanged(x, name)
}

// nameUnchanged reports whether name in the directory n still leads to its lower entry. n is nil if no layer
// changed the directory: then the result is true if other, its state in the other stack, shows the lower.
func (n *inode) nameUnchanged(other *inode, name string) bool {
	if n == nil {
		return other != nil && other.lower != nil
	}
	to, known := n.entries[name]
	switch {
	case n.lower == nil || known && to == nil:
		return false
	case !known:
		return true
	}
	return to.lower != nil && to.lower.IsEntry(n.lower, name)
}

// A pathIndex finds the paths of inodes; the inode table leads only from a directory to its entries.
type pathIndex struct {
	f *FS
	// names are, for each inode, the directory entries that layers record for it.
	names map[*inode][]nameKey
	// byLower holds the inodes by their lower paths.
	byLower map[string]*inode
	// dirs caches what dirPath found: a path, or "" for a directory without one.
	dirs map[*inode]string
	// visiting stops recursion: logs of older versions may contain cycles of names, which cycles counts.
	visiting map[*inode]bool
	cycles   int
}

func newPathIndex(f *FS) *pathIndex {
	a := &pathIndex{f, map[*inode][]nameKey{}, map[string]*inode{}, map[*inode]string{}, map[*inode]bool{}, 0}
	for _, dir := range f.inodes {
		for name, n := range dir.entries {
			if n != nil {
				a.names[n] = append(a.names[n], nameKey{dir, name})
			}
		}
		if dir.lower != nil {
			a.byLower[dir.lower.Path()] = dir
		}
	}
	return a
}

// paths returns all paths, from the root, at which n is known to be visible; none for an inode without a name.
func (a *pathIndex) paths(n *inode) (all []string) {
	if n == a.f.root {
		return []string{"."}
	}
	if a.visiting[n] {
		a.cycles++
		return nil
	}
	a.visiting[n] = true
	defer delete(a.visiting, n)
	for _, k := range a.names[n] {
		if at, ok := a.dirPath(k.dir); ok {
			all = append(all, path.Join(at, k.name))
		}
	}
	if n.lower != nil {
		if at, ok := a.lowerPath(n.lower); ok {
			all = append(all, at)
		}
	}
	return all
}

// dirPath returns the path of the directory n from the root, or false if it has none. It looks for each path once, so
// that those of n directories inside one another cost n steps, but for a result that a cycle cut short.
func (a *pathIndex) dirPath(n *inode) (string, bool) {
	if at, known := a.dirs[n]; known {
		return at, at != ""
	}
	before, at := a.cycles, append(a.paths(n), "")[0]
	if a.cycles == before {
		a.dirs[n] = at
	}
	return at, at != ""
}

// lowerPath returns the path of the lower inode o, which no layer changed; false if a layer hides it.
func (a *pathIndex) lowerPath(o *lower.Ref) (at string, ok bool) {
	if o.Dir == nil {
		return ".", true
	}
	if parent := a.byLower[o.Dir.Path()]; parent == nil { // the parent is clean
		at, ok = a.lowerPath(o.Dir)
	} else if _, other := parent.entries[o.Name]; !other {
		at, ok = a.dirPath(parent)
	}
	return path.Join(at, o.Name), ok
}
