package merge

import (
	"bytes"
	"errors"
	"io"

	"github.com/snapfs/snapfs/engine/diff"
	"golang.org/x/sys/unix"
)

// report reports a conflict about the file or directory t, which covers everything below its paths and those in more;
// why is the reason, for the user. If Input.Choose does not answer the conflict, all that it covers stays as in the
// real tree.
func (m *merger) report(t *entry, kind Kind, why string, more ...string) error {
	c := Conflict{Path: m.mergedPath(t), Kind: kind, Base: t.on[base].node, Mine: t.on[mine].node, Real: t.on[real].node, Why: why}
	for tree, path := range [3]*string{&c.BasePath, &c.MinePath, &c.RealPath} {
		if s := t.on[tree]; s.path != c.Path {
			*path = s.path
		}
	}
	return m.resolve(t, c, more...)
}

// mergedPath returns the path that a file has in the merged tree, or by which it is sorted if neither sandbox
// nor real tree has it.
func (m *merger) mergedPath(t *entry) string {
	if !t.has(mine) && !t.has(real) {
		return t.sortPath()
	}
	path, _ := m.entries.destination(t)
	return path
}

// resolve asks the caller of the merge, by Input.Choose, how to resolve a conflict about the file t, and
// applies the answer. more are further paths that the conflict covers.
func (m *merger) resolve(t *entry, c Conflict, more ...string) (err error) {
	if c.Marked, err = m.canMark(&c); err != nil {
		return err
	}
	c.Alone = c.alone()
	all, places := m.affected(t, c.scope(more))
	c.include(all)
	if all, places, err = m.withOtherEnds(t, &c, all, places); err != nil {
		return err
	}
	choice, key := Ask, string(c.Kind)+" "+c.Path
	if m.in.Choose != nil && !m.asked[key] {
		m.asked[key] = true
		choice = m.in.Choose(c)
	}
	if choice == Ask {
		m.result.Conflicts = append(m.result.Conflicts, c)
		return m.withholdAll(all, places, len(m.result.Conflicts)-1)
	}
	draft := t.outcome.node
	for _, x := range all {
		if choice != Built || x != t {
			if err := m.unbuild(x); err != nil {
				return err
			}
		}
		x.done, x.outcome, x.chosen = true, outcome{}, 0
		switch {
		case choice == Mine:
			x.chosen, x.outcome = mine, x.asOn(mine)
		case choice == Theirs:
			x.chosen, x.outcome = real, x.asOn(real)
		case choice == Built && x != t && x.on[real].path != c.Path && !diff.Inside(x.on[real].path, c.Path):
			x.chosen, x.outcome = real, x.asOn(real)
		}
	}
	if choice == Built {
		for _, like := range []*diff.Node{t.on[mine].node, t.on[real].node} {
			if draft == nil || !draft.Mode.IsRegular() {
				draft = like
			}
		}
		t.outcome, err = m.chosenBuilt(c.Path, draft)
	}
	return err
}

// scope returns the paths below which a conflict covers everything: its own and more, or none if it is about
// a directory itself.
func (c *Conflict) scope(more []string) []string {
	if c.Alone {
		return nil
	}
	return append([]string{c.Path, c.BasePath, c.MinePath, c.RealPath}, more...)
}

// affected returns t and every changed file that one of the trees has at or below paths, then those at or
// below the other paths of these files. places are all these paths.
func (m *merger) affected(t *entry, paths []string) (all []*entry, places []string) {
	all, seen, added := []*entry{t}, map[*entry]bool{t: true}, pathSet{}
	add := func(path string) {
		if added.add(path) {
			places = append(places, path)
		}
	}
	for _, path := range paths {
		add(path)
	}
	for i := 0; i < len(places); i++ {
		for tree := range m.entries.at {
			m.entries.under(tree, places[i], func(x *entry) {
				if seen[x] || x.withheld {
					return
				}
				all, seen[x] = append(all, x), true
				for _, s := range x.on {
					add(s.path)
				}
			})
		}
	}
	return all, places
}

// alone reports whether a conflict is about a directory itself and not about the entries in it.
func (c *Conflict) alone() bool {
	switch c.Kind {
	case Mode, Owner, Xattrs:
		return c.Mine.IsDir() && c.Real.IsDir() && c.RealPath == ""
	}
	return false
}

// canMark reports whether a conflict is about texts, so that WriteMarkers can show both versions in one file.
func (m *merger) canMark(c *Conflict) (bool, error) {
	switch c.Kind {
	case Content:
		return true, nil
	case AddAdd, NoBase:
	default:
		return false, nil
	}
	for tree, s := range c.states() {
		if tree == base {
			continue
		}
		if ok, err := m.in.isText(tree, s); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// states returns the path and node that a conflict has in the base, in the sandbox and in the real tree.
func (c *Conflict) states() (all [3]state) {
	for tree, n := range [3]*diff.Node{c.Base, c.Mine, c.Real} {
		path := [3]string{c.BasePath, c.MinePath, c.RealPath}[tree]
		if path == "" {
			path = c.Path
		}
		all[tree] = state{path: path, node: n}
	}
	return all
}

// isText reports whether a file is text, in the version s that it has in one of the three trees of a merge (tree:
// base, mine or real).
func (in *Input) isText(tree int, s state) (bool, error) {
	if !isFile(s.node) || s.node.Size > TextMax {
		return false, nil
	}
	f, err := in.open(tree, s)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head bytes.Buffer
	_, err = io.Copy(&head, io.LimitReader(f, 8000))
	if errors.Is(err, unix.ESTALE) {
		return false, nil // a file as in halfCopied has no text to show
	}
	if err != nil {
		return false, fail(s.path, err)
	}
	return !isBinary(head.Bytes()), nil
}
