package hostfs

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/isolate"
)

// What would be hidden and does not exist yet. A live tree shows what the host makes there later, and a mask needs
// something to cover. So these names are hidden in the tree itself: by a layer directly above the host's tree, or by
// the server of the tree. A frozen tree needs nothing.

// later returns the names that a sandbox must not see but that do not exist on the host yet, with the
// directories they may appear in, without symbolic links. These are the places of secrets and the paths that
// the policy hides, but not those that it exposes. The sandbox's trees hide them as soon as they exist.
func later(h hiding, workspace string) (list []absentNames) {
	host, others := h.lookupCache(), aliasesOf(h.mounts)
	missing := make([]absentNames, 0, len(h.real.missing)+16)
	unsure := slices.Concat(h.real.unsure, h.also, host.dangling(h.real.people), host.dangling(h.real.machine))
	for _, m := range h.real.missing {
		if dir := host.resolve(m.dir); dir != "" {
			missing = append(missing, absentNames{dir: dir, names: m.names})
		}
	}
	for _, p := range unsure {
		if p = host.firstMissing(p); p != "" {
			missing = append(missing, absentNames{dir: filepath.Dir(p), names: []string{filepath.Base(p)}})
		}
	}
	show := append(slices.Clone(h.expose), workspace)
	for _, m := range missing {
		for _, dir := range append(others.of(m.dir), m.dir) {
			if names := allowed(dir, m.names, show); len(names) > 0 && !underReplaced(dir) {
				list = append(list, absentNames{dir: dir, names: names})
			}
		}
	}
	if dir := host.resolve("/home"); dir != "" && Privileged() {
		for _, dir := range append(others.of(dir), dir) {
			if present := onlyDirs(dir, show); present != nil {
				list = append(list, absentNames{dir: dir, only: present})
			}
		}
	}
	return list
}

// onlyDirs returns the names of the entries of dir, a directory of homes. A sandbox hides all other names in dir: those of
// homes that are made later. It returns nil if the sandbox must not do so: an entry is no directory, which no layer can
// except from what it hides, or a path of show is dir, above dir, or below dir in none of the entries.
func onlyDirs(dir string, show []string) []string {
	entries, err := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if names = append(names, e.Name()); !e.IsDir() {
			return nil
		}
	}
	for _, x := range show {
		if Within(dir, x) || Within(x, dir) && !slices.ContainsFunc(names, func(name string) bool { return Within(x, filepath.Join(dir, name)) }) {
			return nil
		}
	}
	if err != nil {
		return nil
	}
	return names
}

// allowed returns those of names, possible secrets in the directory dir, that a sandbox may hide: not those
// above or below one of the paths show, which stay visible. The last of show is the workspace.
func allowed(dir string, names, show []string) []string {
	for _, x := range show {
		switch {
		case Within(dir, x) && x != show[len(show)-1]:
			return nil
		case Within(x, dir):
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return Within(x, filepath.Join(dir, name)) })
		}
	}
	return names
}

// hideLater makes the live trees among mounts, which show the real files, hide the names in missing as soon as they
// exist. trees are those of the sandbox, points the mounts of the host, and host looks up its paths. A mask covers each
// path in hide; below the mask hideLater puts an empty stand-in, so that no rename in an earlier command leads to the
// masked file. fixed are the other paths at which something is mounted.
//
// hideLater returns the paths to mask. It leaves out the machine's empty files and directories where the tree can hide
// what the host writes later: packages that root installs in the sandbox make files there, such as a key in
// /etc/ssl/private, and a mask costs more.
func hideLater(mounts []isolate.Mount, trees []catalog.Tree, missing []absentNames, hide, fixed []string, points []mount.Point, host *lookupCache) []string {
	s := surveyor{mounts: points}
	// in returns where entries of dir are hidden, or nil.
	in := func(dir string) *isolate.Hidden {
		i := holding(mounts, dir)
		if i < 0 || !live(mounts[i], trees) || s.holding(dir) != s.holding(mounts[i].Target) {
			return nil
		}
		m := &mounts[i]
		rest := strings.TrimPrefix(strings.TrimPrefix(dir, m.Target), "/")
		m.Hidden = append(m.Hidden, isolate.Hidden{Dir: cmp.Or(rest, ".")})
		return &m.Hidden[len(m.Hidden)-1]
	}
	masked := func(path string) bool {
		return slices.ContainsFunc(hide, func(p string) bool { return Within(path, p) })
	}
	for _, m := range missing {
		if masked(m.dir) || m.only != nil && (isTarget(mounts, m.dir) || !hidesAll(mounts, m.dir)) {
			continue
		}
		if h := in(m.dir); h != nil {
			h.Absent, h.All = m.names, m.only != nil // a masked entry has a stand-in
			h.Except = slices.DeleteFunc(slices.Clone(m.only), func(name string) bool { return masked(filepath.Join(m.dir, name)) })
		}
	}
	masks := make([]string, 0, len(hide))
	for _, p := range hide {
		dir := filepath.Dir(p)
		if isTarget(mounts, p) || masked(dir) || host.resolve(dir) != dir {
			masks = append(masks, p)
			continue
		}
		if ofMachine(p) && hideEmpty(host, mounts, p, in) {
			continue
		}
		masks = append(masks, p)
		if one, ok := standIn(host, p); ok {
			if h := in(dir); h != nil {
				h.StandIns = []isolate.StandIn{one}
			}
		}
	}
	fixed = append(fixed, masks...)
	for i := range mounts {
		finish(&mounts[i], s, fixed)
	}
	return masks
}

// live reports whether m, a mount of a sandbox with these trees, shows the host's writes and can hide names from them.
func live(m isolate.Mount, trees []catalog.Tree) bool {
	frozen := slices.ContainsFunc(trees, func(t catalog.Tree) bool { return t.Path == m.Target && t.Frozen })
	return !frozen && (m.Overlay != nil || m.Served != nil || m.NoSockets)
}

// isTarget reports whether one of mounts, those of a sandbox, is mounted at path.
func isTarget(mounts []isolate.Mount, path string) bool {
	return slices.ContainsFunc(mounts, func(m isolate.Mount) bool { return m.Target == path })
}

// hideEmpty makes the tree that has p, a hidden path of the machine, hide what the host writes there later, if p is
// empty now: the sandbox does not find a file, and finds a directory that stays writable. It returns false if p needs a
// mask. in returns where one of mounts hides entries of a directory, or nil; host looks up paths of the host.
func hideEmpty(host *lookupCache, mounts []isolate.Mount, p string, in func(dir string) *isolate.Hidden) bool {
	st, err := host.lstat(p)
	switch {
	case err != nil:
	case st.IsRegular() && st.Size == 0:
		if h := in(filepath.Dir(p)); h != nil {
			h.Absent = []string{filepath.Base(p)}
			return true
		}
	case st.IsDir() && hidesAll(mounts, p) && empty(p):
		if h := in(p); h != nil {
			h.All = true
			return true
		}
	}
	return false
}

// ofMachine reports whether the path p is a hidden place of the machine, so not of a home directory: a log, or one that
// is listed by its full name.
func ofMachine(p string) bool {
	if Within(p, places.LogDir) {
		return true
	}
	_, is := slices.BinarySearch(placesOfMachine(), strings.TrimPrefix(p, "/"))
	return is
}

// hidesAll reports whether the tree at path, one of mounts, can hide all entries of a directory of the host, also
// later ones, while the sandbox makes its own there.
func hidesAll(mounts []isolate.Mount, path string) bool {
	i := holding(mounts, path)
	if i < 0 || mounts[i].ReadOnly {
		return false
	}
	_, served := mounts[i].Served.(snapshot.NameHider)
	o := mounts[i].Overlay
	return served || o != nil && o.Upper != "" && !o.UserXattr
}

// isEmptyDir reports whether path is a directory, and not a link to one, without entries.
func isEmptyDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir() && empty(path)
}

// standIn returns an empty file or directory, or the same link, to put below the mask that covers the hidden
// path p of the host, which host looks up. It returns false if p is none of these.
func standIn(host *lookupCache, p string) (one isolate.StandIn, ok bool) {
	st, err := host.lstat(p)
	one.Name = filepath.Base(p)
	switch {
	case err != nil:
	case st.IsDir():
		one.Kind = isolate.EmptyDir
	case st.IsRegular():
		one.Kind = isolate.EmptyFile
	case st.IsSymlink():
		one.Kind = isolate.Link
		one.Link, err = os.Readlink(p)
	default:
		return one, false
	}
	return one, err == nil
}

// finish completes m, a mount of a tree in which names are hidden from the sandbox. It passes the names to the FUSE
// server if one serves the tree, with the paths fixed, at which something is mounted. It sets the options of an overlay
// that depend on the names. s knows the host's mounts.
func finish(m *isolate.Mount, s surveyor, fixed []string) {
	if h, ok := m.Served.(snapshot.NameHider); ok {
		var names []string
		for _, p := range fixed {
			if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(m.Target, "/")+"/"); ok {
				names = append(names, "//"+rest)
			}
		}
		for _, e := range m.Hidden {
			for _, name := range e.Absent {
				names = append(names, path.Join(e.Dir, name))
			}
			if e.All {
				names = append(names, e.Dir+"/")
			}
			for _, name := range e.Except {
				names = append(names, "/"+path.Join(e.Dir, name))
			}
		}
		m.Served = h.Hiding(names)
	}
	if m.Overlay != nil && len(m.Hidden) > 0 {
		o := *m.Overlay
		o.OneFilesystem = o.Upper != "" && !o.Nested && len(o.Base) == 0 && onOne(path.Dir(o.Work), m.Target, s)
		m.Overlay = &o
	}
}

// onOne reports whether the directories a and b lie on one filesystem. Different subvolumes of one btrfs count as
// one. s knows the host's mounts.
func onOne(a, b string, s surveyor) bool {
	var x, y syscall.Stat_t
	if syscall.Stat(a, &x) == nil && syscall.Stat(b, &y) == nil && x.Dev == y.Dev {
		return true
	}
	on, other := s.holding(a), s.holding(b)
	return on != nil && other != nil && on.Dev == other.Dev
}
