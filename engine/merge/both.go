package merge

import (
	"io/fs"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
)

// mergeBoth decides how a file or directory that the sandbox and the real tree both have is in the merged
// tree, or reports a conflict.
func (m *merger) mergeBoth(t *entry) error {
	path, ok := m.entries.destination(t)
	if !ok {
		return m.report(t, RenameRename, sideDid(mine, "renamed it to "+quote(t.on[mine].path))+", "+sideDid(real, "to "+quote(t.on[real].path)))
	}
	a, b := t.on[mine], t.on[real]
	switch {
	case a.node.Mode.Type() != b.node.Mode.Type():
		return m.mergeTypes(t, path)
	case !t.has(base):
		return m.mergeAdded(t)
	case t.on[base].node.Mode.Type() != b.node.Mode.Type():
		return m.mergeRetyped(t, path)
	}
	return m.mergeAspects(t, path)
}

// mergeTypes decides how a path of different types in sandbox and real tree, say a file and a directory, is
// in the merged tree, or reports a conflict.
func (m *merger) mergeTypes(t *entry, path string) error {
	a, b := t.on[mine], t.on[real]
	if t.has(base) && a.what&diff.Type == 0 && !t.changed(mine) && !m.entries.movedItself(mine, t) {
		t.outcome = outcome{path, b.node, fromReal}
		return m.copyMoved(t)
	}
	if t.has(base) && b.what&diff.Type == 0 && !t.changed(real) && !m.entries.movedItself(real, t) {
		t.outcome = outcome{path, a.node, fromMine}
		return nil
	}
	kind := Type
	if a.node.IsDir() != b.node.IsDir() && (m.nonEmptyDir(mine, t) || m.nonEmptyDir(real, t)) {
		kind = Directory
	}
	did := func(side int) string {
		switch s := t.on[side]; {
		case t.has(base) && m.entries.movedItself(side, t):
			return "renamed it from " + quote(t.on[base].path)
		case t.has(base) && s.what&diff.Type == 0:
			return "changed " + aspectWords(s.what)
		}
		return "made it a " + diff.TypeName(t.on[side].node.Mode)
	}
	return m.report(t, kind, sideDid(mine, did(mine))+", "+sideDid(real, did(real)))
}

// nonEmptyDir reports whether t is, on a side of the merge (sandbox or real tree), a directory in which
// either side has changed anything.
func (m *merger) nonEmptyDir(side int, t *entry) bool {
	found := 0
	if t.isDir(side) {
		m.entries.under(side, t.on[side].path, func(*entry) { found++ })
	}
	return found > 1
}

// mergeRetyped decides how a file that both sides, sandbox and real tree, turned into the same other file
// type is in the merged tree. It does so as if both had added it.
func (m *merger) mergeRetyped(t *entry, path string) error {
	t.on[base] = state{path: t.on[base].path}
	err := m.mergeAdded(t)
	if t.outcome.node != nil && t.chosen == 0 {
		t.outcome.path = path
	}
	return err
}

// mergeAdded decides how a file that both sides, sandbox and real tree, added with the same file type is in
// the merged tree, or reports a conflict.
func (m *merger) mergeAdded(t *entry) error {
	a, b := t.on[mine].node, t.on[real].node
	n, bad := metadata(nil, a, b)
	if isFile(a) {
		same, err := m.sameContent(t)
		if err != nil {
			return err
		}
		if !same {
			return m.report(t, AddAdd, "added on both sides, with different content")
		}
	}
	if len(bad) > 0 {
		return m.report(t, bad[0], "added on both sides, with different "+kindName(bad[0]))
	}
	if m.linksConflict(t) {
		return m.reportLinks(t)
	}
	t.outcome = outcome{t.on[real].path, n, fromReal}
	return nil
}

// mergeAspects decides how an entry that has one file type in all three trees is at path in the merged tree.
// It merges links, metadata, content and time separately, and reports conflicts.
func (m *merger) mergeAspects(t *entry, path string) error {
	a, b := t.on[mine], t.on[real]
	if m.linksConflict(t) {
		return m.reportLinks(t)
	}
	n, bad := metadata(t.on[base].node, a.node, b.node)
	t.outcome = outcome{path, n, fromReal}
	if isFile(n) {
		conflict, err := m.pickContent(t)
		if conflict || err != nil {
			return err
		}
	}
	m.mergeTime(t)
	if len(bad) > 0 {
		why := kindName(bad[0]) + " changed on both sides"
		return m.report(t, bad[0], why)
	}
	return m.copyMoved(t)
}

// pickContent decides where the content of a merged file comes from: the side that changed it, or a merge of
// both. conflict is true if that merge fails and a conflict was reported.
func (m *merger) pickContent(t *entry) (conflict bool, err error) {
	a, b := t.on[mine], t.on[real]
	n := t.outcome.node
	take := func(s state, from source) {
		t.outcome.from, n.Size, n.MTime, n.CTime, n.Ino, n.Dev, n.NLink = from, s.node.Size, s.node.MTime, s.node.CTime, s.node.Ino, s.node.Dev, s.node.NLink
	}
	switch {
	case a.what&b.what&diff.Content != 0:
		return m.mergeContents(t)
	case a.what&diff.Content != 0:
		take(a, fromMine)
	case b.what&diff.Content != 0:
		take(b, fromReal)
	case t.outcome.path != b.path || m.links.relinked(mine, t):
		take(a, fromMine) // no promotion links to another path: copy it
	}
	return false, nil
}

// mergeTime gives the merged file the sandbox's modification time if only the sandbox changed the time, or if
// it changed a symlink's target or a device number.
func (m *merger) mergeTime(t *entry) {
	a, b := t.on[mine], t.on[real]
	n := t.outcome.node
	switch alone := a.what&diff.Time != 0 && b.what&diff.Time == 0; {
	case isFile(n) && (t.outcome.from != fromReal || b.what&diff.Content != 0):
	case a.what&(diff.Target|diff.Device) != 0 && b.what&(diff.Target|diff.Device) == 0, alone:
		n.MTime = a.node.MTime
	}
}

// linksConflict reports whether the hard links of a file are in conflict: of sandbox and real tree, one
// changed which names are this file, and the other changed the file or its links in another way.
func (m *merger) linksConflict(t *entry) bool {
	byMine, byReal := m.links.relinked(mine, t), m.links.relinked(real, t)
	switch {
	case !byMine && !byReal, m.links.sameLinks(t):
		return false
	case byMine && byReal:
		return t.has(base) && (t.changed(mine) || t.changed(real)) || !m.onlyLinked(t)
	case !t.has(base):
		return false
	}
	return byMine && t.changed(real) || byReal && t.changed(mine)
}

// onlyLinked reports whether sandbox and real tree both only added hard links to a file and removed none.
func (m *merger) onlyLinked(t *entry) bool {
	for _, side := range []int{mine, real} {
		now := map[*entry]bool{}
		for _, x := range m.links.of(side, t) {
			now[x] = true
		}
		for _, x := range m.links.old[side][t.on[side].old] {
			if x.has(side) && !now[x] {
				return false
			}
		}
	}
	return true
}

// reportLinks reports a conflict about the hard links of a file, which covers all its names in the sandbox
// and the real tree.
func (m *merger) reportLinks(t *entry) error {
	did := func(side int) string {
		if m.links.relinked(side, t) {
			return "changed which names are this file"
		}
		return "changed " + aspectWords(t.on[side].what)
	}
	var more []string
	for _, side := range []int{mine, real} {
		for _, x := range m.links.of(side, t) {
			more = append(more, x.on[side].path)
		}
	}
	return m.report(t, Links, sideDid(mine, did(mine))+", "+sideDid(real, did(real)), more...)
}

// mergedTime returns the modification time for a file merged from both versions: 1 ns after the later one.
// Tools that compare by time and size then see a new file, and a repeated merge yields the same time.
func mergedTime(a, b *diff.Node) time.Time {
	later := a.MTime
	if b.MTime.After(later) {
		later = b.MTime
	}
	return later.Add(time.Nanosecond)
}

// copyMoved copies a regular file of the real tree to Scratch if the merge moves it to another path: a
// promotion reads content from the sandbox or Scratch, never from another real path.
func (m *merger) copyMoved(t *entry) error {
	n := t.outcome.node
	if n == nil || t.outcome.from != fromReal || t.outcome.path == t.on[real].path || n.Mode.Type() != fs.FileMode(0) {
		return nil
	}
	return m.copyReal(t)
}
