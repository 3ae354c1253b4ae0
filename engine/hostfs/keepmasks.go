package hostfs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/isolate"
)

// A mask covers a name of a directory. If that directory is the host's own, bound into the sandbox, the kernel removes
// the mask when the host renames another file over the name, or removes it (detach_mounts in fs/namespace.c). A mask in
// a skeleton or an overlay stays, because the host does not change the names there.

// maxSplit is how many entries a directory may have for keepMasks to show each by a mount of its own. Pid 1 of the
// sandbox has a descriptor of each mount, of about 1,000.
const maxSplit = 500

// keepMasks changes mounts, those of an ordinary user's sandbox, so that none of the paths hide, which masks cover, lies in
// a directory that is bound as it is on the host. Such a directory becomes a skeleton, with a mount for each directory
// in it, down to one of which the kernel can make an overlay. asked are the paths that the policy hides.
//
// Some paths keep a mask that the host can remove: those that this user cannot read now, and empty directories, unless
// they are in asked; and those in a directory with more than [maxSplit] entries, unless a directory between can be an
// overlay. docs/hidden.md lists them. notes are sentences for the user about the last.
func keepMasks(mounts []isolate.Mount, hide, asked []string, env *Environment) (all []isolate.Mount, notes []string) {
	if Privileged() || !slices.ContainsFunc(mounts, bound) {
		return mounts, nil
	}
	works := slices.ContainsFunc(mounts, func(m isolate.Mount) bool { return m.Overlay != nil })
	for _, p := range hide {
		i := boundAbove(mounts, p)
		if i < 0 || !slices.Contains(asked, p) && (!reads(p) || isEmptyDir(p)) {
			continue
		}
		for i >= 0 {
			top := mounts[i].Target
			if p == top { // the directory above has an empty entry in its place
				mounts = slices.Delete(mounts, i, i+1)
			} else if list, ok := split(mounts, i, p, works, env); ok {
				mounts = list
			} else {
				if bound(mounts[holding(mounts, p)]) {
					notes = append(notes, fmt.Sprintf("%s is hidden only until it is replaced outside of the sandbox: %s has more than %d entries, and mounts in it",
						pathlist.Printable(p), pathlist.Printable(top), maxSplit))
				}
				break
			}
			i = boundAbove(mounts, p)
		}
	}
	slices.SortStableFunc(mounts, func(a, b isolate.Mount) int { return strings.Compare(a.Target, b.Target) })
	return mounts, notes
}

// bound reports whether m shows a directory of the host by itself, not by a copy or an overlay.
func bound(m isolate.Mount) bool {
	return m.Source != "" && m.Source == m.Target && m.ReadOnly && !m.NoSockets
}

// boundAbove returns the index of the innermost of mounts that is [bound] and holds the path p, or -1 if p lies in a
// copy or a skeleton. An overlay of a directory counts as a part of the mount above: the host can rename the directory.
func boundAbove(mounts []isolate.Mount, p string) int {
	i := holding(mounts, p)
	for i >= 0 && mounts[i].NoSockets && mounts[i].Target != "/" {
		i = holding(mounts, filepath.Dir(mounts[i].Target))
	}
	if i < 0 || !bound(mounts[i]) {
		return -1
	}
	return i
}

// split replaces the mount i of mounts, which is [bound], by a skeleton and a mount of each directory in it. The one
// that holds the path p is an overlay if works is set, the kernel makes overlays for this user, and if it makes one of
// that directory. For a directory with many entries split adds just such an overlay on the way to p. It returns false
// if that is not possible.
func split(mounts []isolate.Mount, i int, p string, works bool, env *Environment) (list []isolate.Mount, ok bool) {
	top := mounts[i]
	shown := func(dir string) isolate.Mount {
		on := works && Within(p, dir) && p != dir && env.overlays(dir)
		return isolate.Mount{Target: dir, Source: dir, ReadOnly: true, NoSockets: on, MayVanish: true}
	}
	entries := firstEntries(top.Target, maxSplit+1)
	if len(entries) > maxSplit {
		covered := !bound(mounts[holding(mounts, p)])
		for dir := top.Target; !covered && dir != filepath.Dir(p); {
			dir = next(dir, p)
			if m := shown(dir); m.NoSockets {
				return append(mounts, m), true
			}
		}
		return mounts, false
	}
	mounts[i] = isolate.Mount{Target: top.Target, Skeleton: top.Target, MayVanish: top.MayVanish}
	for _, e := range entries {
		dir := filepath.Join(top.Target, e.Name())
		if e.IsDir() && enterable(dir) && !slices.Contains(replaced, dir) && !isTarget(mounts, dir) {
			mounts = append(mounts, shown(dir))
		}
	}
	return mounts, true
}

// next returns the path of the entry of dir on the way to p, which lies below dir.
func next(dir, p string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
	name, _, _ := strings.Cut(rest, "/")
	return filepath.Join(dir, name)
}
