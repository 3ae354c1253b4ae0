package hostfs

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/isolate"
)

// What would be hidden and does not exist yet. A live tree shows what the host makes there later, and a mask needs
// something to cover. So these names are hidden in the tree itself: by a layer directly above the host's tree, or by
// the server of the tree. A frozen tree needs nothing.

// later returns the paths, without symbolic links, of what is to be hidden as soon as it exists.
func later(h hiding, workspace string) []string {
	real := map[string]string{} // resolved directories
	var missing []string
	for _, p := range slices.Concat(h.real.missing, h.also, dangling(h.real.people), dangling(h.real.machine)) {
		dir, name := filepath.Split(p)
		to, ok := real[dir]
		if !ok {
			to, _ = filepath.EvalSymlinks(dir)
			real[dir] = to
		}
		path := filepath.Join(to, name)
		if to == "" || !missingAt(path) {
			if path = firstMissing(p); path == "" {
				continue
			}
		}
		missing = append(missing, path)
	}
	missing = append(missing, otherPaths(missing, h.mounts)...)
	slices.Sort(missing)
	missing = slices.Compact(missing)
	return slices.DeleteFunc(missing, func(p string) bool {
		exposed := slices.ContainsFunc(h.expose, func(x string) bool { return Within(p, x) || Within(x, p) })
		return exposed || underReplaced(p) || Within(workspace, p)
	})
}

// dangling returns those of paths that are symbolic links to something that does not exist.
func dangling(paths []string) (list []string) {
	for _, p := range paths {
		info, err := os.Lstat(p)
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			if _, err := os.Stat(p); absent(err) {
				list = append(list, p)
			}
		}
	}
	return list
}

// hideLater makes the live trees among mounts hide the paths in missing, and below their masks those in hide, so that
// no rename in an earlier session leads to them.
func hideLater(mounts []isolate.Mount, trees []catalog.Tree, missing, hide []string, points []mount.Point) {
	frozen := map[string]bool{}
	for _, t := range trees {
		frozen[t.Path] = t.Frozen
	}
	s := surveyor{mounts: points}
	add := func(p string, kind func(string) (isolate.Hidden, bool)) {
		i := holding(mounts, p)
		if i < 0 {
			return
		}
		m := &mounts[i]
		rest := strings.TrimPrefix(strings.TrimPrefix(p, m.Target), "/")
		live := m.Overlay != nil || m.Served != nil || m.NoSockets
		if rest == "" || frozen[m.Target] || !live || s.holding(filepath.Dir(p)) != s.holding(m.Target) {
			return
		}
		if h, ok := kind(rest); ok {
			m.Hidden = append(m.Hidden, h)
		}
	}
	for _, p := range outermost(slices.Concat(missing, hide)) {
		if _, late := slices.BinarySearch(missing, p); late {
			add(p, func(rest string) (isolate.Hidden, bool) { return isolate.Hidden{Path: rest}, true })
		} else {
			add(p, func(rest string) (isolate.Hidden, bool) { return standIn(p, rest) })
		}
	}
	for i := range mounts {
		finish(&mounts[i], s)
	}
}

// outermost returns paths, sorted, without those below others.
func outermost(paths []string) (list []string) {
	slices.SortFunc(paths, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	for _, p := range paths {
		if n := len(list); n == 0 || !Within(p, list[n-1]) {
			list = append(list, p)
		}
	}
	return list
}

// standIn returns what is in place of the hidden path p, rest in its tree, below the mask; false if p is neither a
// directory nor a file nor a link, or is reached by a link.
func standIn(p, rest string) (isolate.Hidden, bool) {
	h := isolate.Hidden{Path: rest}
	info, err := os.Lstat(p)
	if err != nil {
		return h, false
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(p)); err != nil || dir != filepath.Dir(p) {
		return h, false
	}
	switch info.Mode().Type() {
	case os.ModeDir:
		h.Kind = isolate.EmptyDir
	case 0:
		h.Kind = isolate.EmptyFile
	case os.ModeSymlink:
		h.Kind = isolate.Link
		h.Link, err = os.Readlink(p)
	default:
		return h, false
	}
	return h, err == nil
}

// finish completes a mount with its hidden entries.
func finish(m *isolate.Mount, s surveyor) {
	if len(m.Hidden) == 0 {
		return
	}
	if h, ok := m.Served.(snapshot.NameHider); ok {
		var names []string
		for _, e := range m.Hidden {
			if e.Kind == isolate.Absent {
				names = append(names, e.Path)
			}
		}
		m.Served = h.Hiding(names)
	}
	if m.Overlay != nil {
		o := *m.Overlay
		o.OneFilesystem = o.Upper != "" && !o.Nested && len(o.Base) == 0 && onOne(path.Dir(o.Work), m.Target, s)
		m.Overlay = &o
	}
}

// onOne reports whether two directories lie on one filesystem, on btrfs also in different subvolumes.
func onOne(a, b string, s surveyor) bool {
	var x, y syscall.Stat_t
	if syscall.Stat(a, &x) == nil && syscall.Stat(b, &y) == nil && x.Dev == y.Dev {
		return true
	}
	on, other := s.holding(a), s.holding(b)
	return on != nil && other != nil && on.Dev == other.Dev
}
