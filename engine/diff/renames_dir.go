package diff

import "strings"

// subtree returns which changes are below the deleted or added directory of change dir: those numbered from
// up to, but not including, to. They follow it directly.
func (f *finder) subtree(dir int) (from, to int) {
	prefix := f.changes[dir].Path + "/"
	for to = dir + 1; to < len(f.changes) && strings.HasPrefix(f.changes[to].Path, prefix); {
		to++
	}
	return dir + 1, to
}

// byParent pairs, in a renamed directory whose inode is unchanged, deleted and added nodes with the same path
// in it. Their inodes may differ, because an editor that replaces a file gives it another one.
func (f *finder) byParent() {
	for i := range f.changes {
		if !f.whole[i] {
			continue
		}
		target := f.changes[f.partner[i]].Path
		for j, end := f.subtree(i); j < end; j++ {
			if to, ok := f.counterpart(i, j, target); ok {
				f.pair(j, to)
				if f.changes[j].Old.Mode.IsDir() {
					f.whole[j] = true
				}
			}
		}
	}
}

// counterpart returns the added change that has the same path below target as the deleted change j has below
// directory i. It returns false unless both have one type and neither is part of a rename yet.
func (f *finder) counterpart(i, j int, target string) (int, bool) {
	to, ok := f.added[target+f.changes[j].Path[len(f.changes[i].Path):]]
	if !ok || !f.unpaired(j) || !f.unpaired(to) {
		return 0, false
	}
	return to, f.changes[j].Old.Mode.Type() == f.changes[to].New.Mode.Type()
}

// directories pairs a deleted and an added directory as a rename if all files of the one have moved to the
// other.
func (f *finder) directories() {
	for i := 0; i < len(f.changes); i++ {
		if f.changes[i].Kind != Deleted || !f.changes[i].Old.Mode.IsDir() || !f.unpaired(i) {
			continue
		}
		to, ok := f.destination(i)
		if !ok {
			continue
		}
		target := f.changes[to].Path
		f.pair(i, to)
		f.whole[i] = true
		from, end := f.subtree(i)
		for j := from; j < end; j++ {
			if k, ok := f.counterpart(i, j, target); ok {
				f.pair(j, k)
				f.whole[j] = f.changes[j].Old.Mode.IsDir()
			}
		}
		i = end - 1
	}
}

// destination returns the added directory to which everything below the deleted directory of change dir has
// moved. The first file determines it; no other may disagree.
func (f *finder) destination(dir int) (int, bool) {
	base := len(f.changes[dir].Path)
	from, end := f.subtree(dir)
	to := -1
	for j := from; j < end && to < 0; j++ {
		if k := f.partner[j]; k >= 0 && !f.changes[j].Old.Mode.IsDir() {
			target, ok := strings.CutSuffix(f.changes[k].Path, f.changes[j].Path[base:])
			if to, ok = f.added[target], ok && f.isAddedDir(target); !ok {
				return 0, false
			}
		}
	}
	if to < 0 || !f.unpaired(to) {
		return 0, false
	}
	target := f.changes[to].Path
	for j := from; j < end; j++ {
		k, ok := f.added[target+f.changes[j].Path[base:]]
		switch {
		case f.changes[j].Old.Mode.IsDir():
		case !ok, f.partner[j] != k && !(f.featureless(j, k) && f.unpaired(j) && f.unpaired(k)):
			return 0, false
		}
	}
	return to, true
}

func (f *finder) isAddedDir(path string) bool {
	i, ok := f.added[path]
	return ok && f.changes[i].New.Mode.IsDir()
}

// featureless reports whether the nodes of the deleted change i and the added change j agree in type and have nothing
// else to compare, such as empty files. They count as renamed only along with their directory.
func (f *finder) featureless(i, j int) bool {
	a, b := f.changes[i].Old, f.changes[j].New
	return a.Mode.Type() == b.Mode.Type() && a.Rdev == b.Rdev && a.Size == 0 && b.Size == 0
}
