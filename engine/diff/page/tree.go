package page

import "strings"

// deepest is the largest depth of directories that the tree of paths shows on lines of their own; deeper ones
// are part of the name.
const deepest = 12

// A branch is a directory or a changed path in the tree of paths that the page shows.
type branch struct {
	name string
	// children has the branches below, in the order of changes.
	children []*branch
	// leaf is the branch's own change, nil for an unchanged directory. index is its
	// number.
	leaf  *entry
	index int
}

// buildTree builds, from the changed paths of part number part of the page, the tree of directories that the
// page shows before the files.
func (b *builder) buildTree(part int) *branch {
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
		at.children = append(at.children, &branch{name: rest, leaf: e, index: i})
	}
	return root
}

// dir returns the subdirectory called name in the page's tree of paths. It creates the subdirectory unless it
// is the last child, which suffices because paths come in order.
func (br *branch) dir(name string) *branch {
	if n := len(br.children); n > 0 && br.children[n-1].name == name {
		return br.children[n-1]
	}
	d := &branch{name: name}
	br.children = append(br.children, d)
	return d
}

// tree writes the tree of changed paths of a part to the page, until s holds room bytes. It returns the
// number of paths left out.
func (b *builder) tree(s *sheet, part int, room int64) (left int) {
	s.mark("<ul>")
	for _, br := range b.buildTree(part).children {
		left += br.write(s, room)
	}
	s.mark("</ul>")
	return left
}

func (br *branch) write(s *sheet, room int64) (left int) {
	if s.n > room {
		return br.paths()
	}
	if len(br.children) == 0 {
		s.mark("<li>")
		br.link(s, "")
		return 0
	}
	// A directory with one subdirectory and nothing else shares its line.
	name := br.name + "/"
	for br.leaf == nil && len(br.children) == 1 && len(br.children[0].children) > 0 {
		br = br.children[0]
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
	for _, w := range br.children {
		left += w.write(s, room)
	}
	s.mark("</ul></details>")
	return left
}

// link writes a line of the page's tree of changed paths, with a link to the section about the path. as is
// the name to show, "" for the branch's own.
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

// paths returns the number of changed paths at and below a directory of the page's tree of paths.
func (br *branch) paths() (n int) {
	if br.leaf != nil {
		n = 1
	}
	for _, w := range br.children {
		n += w.paths()
	}
	return n
}
