package diff

import "strings"

// beneath gives the indexes, from and up to, of what lies beneath a deleted or
// added directory: changes are in an order that puts it right behind.
func (f *finder) beneath(dir int) (from, to int) {
	prefix := f.changes[dir].Path + "/"
	for to = dir + 1; to < len(f.changes) && strings.HasPrefix(f.changes[to].Path, prefix); {
		to++
	}
	return dir + 1, to
}

// along pairs what kept its place in a directory that kept its inode: an editor
// that writes a file anew gives it another inode.
func (f *finder) along() {
	for i := range f.changes {
		if !f.whole[i] {
			continue
		}
		target := f.changes[f.partner[i]].Path
		for j, end := f.beneath(i); j < end; j++ {
			if to, ok := f.counterpart(i, j, target); ok {
				f.join(j, to)
				if f.changes[j].Old.Mode.IsDir() {
					f.whole[j] = true
				}
			}
		}
	}
}

// counterpart finds what lies at the place beneath target that j has beneath
// the directory i, if it is of one type with it and both are open.
func (f *finder) counterpart(i, j int, target string) (int, bool) {
	to, ok := f.added[target+f.changes[j].Path[len(f.changes[i].Path):]]
	if !ok || !f.open(j) || !f.open(to) {
		return 0, false
	}
	return to, f.changes[j].Old.Mode.Type() == f.changes[to].New.Mode.Type()
}

// directories pairs the directories all of whose files have moved along.
func (f *finder) directories() {
	for i := 0; i < len(f.changes); i++ {
		if f.changes[i].Kind != Deleted || !f.changes[i].Old.Mode.IsDir() || !f.open(i) {
			continue
		}
		to, ok := f.destination(i)
		if !ok {
			continue
		}
		target := f.changes[to].Path
		f.join(i, to)
		f.whole[i] = true
		from, end := f.beneath(i)
		for j := from; j < end; j++ {
			if k, ok := f.counterpart(i, j, target); ok {
				f.join(j, k)
				f.whole[j] = f.changes[j].Old.Mode.IsDir()
			}
		}
		i = end - 1
	}
}

// destination is the added directory that everything beneath a deleted one has
// moved to. The first file says which; no other may disagree.
func (f *finder) destination(dir int) (int, bool) {
	base := len(f.changes[dir].Path)
	from, end := f.beneath(dir)
	to := -1
	for j := from; j < end && to < 0; j++ {
		if k := f.partner[j]; k >= 0 && !f.changes[j].Old.Mode.IsDir() {
			target, ok := strings.CutSuffix(f.changes[k].Path, f.changes[j].Path[base:])
			if to, ok = f.added[target], ok && f.isAddedDir(target); !ok {
				return 0, false
			}
		}
	}
	if to < 0 || !f.open(to) {
		return 0, false
	}
	target := f.changes[to].Path
	for j := from; j < end; j++ {
		k, ok := f.added[target+f.changes[j].Path[base:]]
		switch {
		case f.changes[j].Old.Mode.IsDir():
		case !ok, f.partner[j] != k && !(f.bland(j, k) && f.open(j) && f.open(k)):
			return 0, false
		}
	}
	return to, true
}

func (f *finder) isAddedDir(path string) bool {
	i, ok := f.added[path]
	return ok && f.changes[i].New.Mode.IsDir()
}

// bland: two nodes of which there is nothing to compare but what they are.
func (f *finder) bland(i, j int) bool {
	a, b := f.changes[i].Old, f.changes[j].New
	return a.Mode.Type() == b.Mode.Type() && a.Rdev == b.Rdev && a.Size == 0 && b.Size == 0
}
