package page

import "strings"

// deepest is how many directories are shown within one another; what lies deeper is
// named by the rest of its path.
const deepest = 12

// A branch is a directory of the tree of paths.
type branch struct {
	name string
	// within is what lies in it, in the order of changes.
	within []*branch
	// leaf is its own change; nil where only what is in it changed. index is its
	// number.
	leaf  *entry
	index int
}

// grow makes the tree of a part's entries.
func (b *builder) grow(part int) *branch {
	root := &branch{}
	for i := range b.all {
		e := &b.all[i]
		if e.part != part {
			continue
		}
		at, rest := root, e.Path
		for depth := 0; depth < deepest; depth++ {
			name, more, deeper := strings.Cut(rest, "/")
			if !deeper {
				break
			}
			at, rest = at.dir(name), more
		}
		at.within = append(at.within, &branch{name: rest, leaf: e, index: i})
	}
	return root
}

// dir is the directory of that name; in the order of changes it is the last one,
// if there is one, or was a change itself just before.
func (br *branch) dir(name string) *branch {
	if n := len(br.within); n > 0 && br.within[n-1].name == name {
		return br.within[n-1]
	}
	d := &branch{name: name}
	br.within = append(br.within, d)
	return d
}

// tree writes the tree of a part, until the sheet holds room bytes, and answers how
// many paths it left out.
func (b *builder) tree(s *sheet, part int, room int64) (left int) {
	s.mark("<ul>")
	for _, br := range b.grow(part).within {
		left += br.write(s, room)
	}
	s.mark("</ul>")
	return left
}

func (br *branch) write(s *sheet, room int64) (left int) {
	if s.n > room {
		return br.paths()
	}
	if len(br.within) == 0 {
		s.mark("<li>")
		br.link(s, "")
		return 0
	}
	// A directory that holds one directory alone shares its line with it.
	name := br.name + "/"
	for br.leaf == nil && len(br.within) == 1 && len(br.within[0].within) > 0 {
		br = br.within[0]
		name += br.name + "/"
	}
	s.mark("<li class=dir><details open><summary>")
	if br.leaf != nil {
		br.link(s, name)
	} else {
		s.mark("<bdi>")
		s.name(name)
		s.mark("</bdi>")
	}
	s.mark("</summary><ul>")
	for _, w := range br.within {
		left += w.write(s, room)
	}
	s.mark("</ul></details>")
	return left
}

// link writes a line of the tree; as is its name, or "" for the branch's own.
func (br *branch) link(s *sheet, as string) {
	if as == "" {
		as = br.name
	}
	badge(s, br.leaf)
	if br.leaf.shown {
		s.mark("<a href=#f")
		s.num(br.index)
		s.mark("><bdi>")
		s.name(as)
		s.mark("</bdi></a> ")
		count(s, br.leaf.lines)
		return
	}
	s.mark("<bdi>")
	s.name(as)
	s.mark("</bdi> <em>left out</em>")
}

// paths is how many changed paths a branch holds.
func (br *branch) paths() (n int) {
	if br.leaf != nil {
		n = 1
	}
	for _, w := range br.within {
		n += w.paths()
	}
	return n
}
