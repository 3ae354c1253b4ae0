package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/snapfs/snapfs/isolate"
)

// Spec returns the container spec of a sandbox: its mounts, masked paths, ids and network. notes are
// sentences for the user about differences from the sandbox's state at creation. search has found the secrets in the
// real trees.
func (hf *Host) Spec(ctx context.Context, rec *catalog.Record, search *Search) (spec isolate.Spec, notes []string, err error) {
	env, err := search.environment(rec.Workspace, hf.cat.Dir())
	if err != nil {
		return isolate.Spec{}, nil, err
	}
	notes = homeNotes(env)
	hide := append(secretFiles(rec.Policy), hf.cat.Dir())
	hide = append(hide, hf.cat.Outside()...)
	mounts := make([]isolate.Mount, 0, len(rec.Trees)+len(env.Shown))
	skeletons := make([]isolate.Mount, 0, len(env.Frames)+len(rec.Trees)+len(env.Shown))
	bare := map[string]bool{} // trees that are shown as on the host
	roots := map[string]string{}
	for _, t := range rec.Trees {
		note, err := checkMounted(rec, t, env)
		if err != nil {
			return isolate.Spec{}, nil, err
		}
		if note != "" {
			notes = append(notes, note)
		}
		if Vanished(t, rec.Workspace) {
			continue
		}
		b, err := hf.BackendOf(ctx, t)
		if err != nil {
			return isolate.Spec{}, nil, err
		}
		f, err := b.LookupFork(ctx, t.Fork)
		if err != nil {
			return isolate.Spec{}, nil, err
		}
		roots[t.Path] = f.View.Path
		m := MountOf(t.Path, f.View)
		if m.Overlay != nil && len(m.Overlay.Base) == 0 && !Privileged() && env.HasMountsBelow(t.Path) {
			part, note, err := showReal(ctx, rec, t, f.View, b, env)
			if err != nil {
				return isolate.Spec{}, nil, err
			}
			notes = append(notes, note)
			mounts = append(mounts, part...)
			bare[t.Path] = true
			m = isolate.Mount{Target: t.Path, Source: t.Path, ReadOnly: true}
		}
		m.MayVanish = !Privileged() && !Within(rec.Workspace, t.Path)
		mounts = append(mounts, m)
		if hidden := b.Facts().Hidden; hidden != "" {
			hide = append(hide, hidden)
		}
	}
	for _, f := range frames(env, rec.Trees) {
		if !covers(bare, f) && !slices.Contains(replaced, f) {
			skeletons = append(skeletons, isolate.Mount{Target: f, Skeleton: f})
		}
	}
	mounts, sockets := withoutSockets(slices.Concat(skeletons, mounts, asOnHost(rec, env)), env)
	tmp, bundle, err := hf.owned(ctx, rec)
	if err != nil {
		return isolate.Spec{}, nil, err
	}
	mounts = append(mounts, bundle...)
	slices.SortStableFunc(mounts, func(a, b isolate.Mount) int { return strings.Compare(a.Target, b.Target) })
	s := Confinement(rec.Policy, rec.Workspace)
	s.DigestCache = hf.cat.Digests()
	more, err := limitPaths(&s, rec.Policy, rec.Workspace, dpkg.Cache(hf.cat.Packages()))
	if err != nil {
		return isolate.Spec{}, nil, err
	}
	notes = append(notes, more...)
	s.Mounts, s.Tmp, s.Hostname = mounts, tmp, Hostname(rec.Name)
	h := hiding{real: search.secrets(), own: hide, also: rec.Policy.Hide, expose: exposed(rec.Policy.Expose), mounts: env.mounts, roots: roots}
	h.host = newLookupCache(h.real.dirs...)
	var unlisted error // prevents the start
	s.Hide, unlisted = hidden(h, userHome(), rec.Workspace)
	s.Mounts = outside(s.Mounts, s.Hide)
	more, err = addOtherNames(ctx, &s, rec, h.host, copies(roots))
	notes = append(notes, more...)
	s.Mounts, more = keepMasks(s.Mounts, s.Hide, rec.Policy.Hide, env)
	notes = append(notes, more...)
	s.Redacted = redacted(s.Hide, rec.Policy.Hide)
	s.Hide = hideLater(s.Mounts, rec.Trees, later(h, rec.Workspace), s.Hide, slices.Concat(s.ReadOnly, s.NoExec, s.Guarded), env.mounts, h.host)
	s.Hide = append(s.Hide, sockets...)
	return s, notes, errors.Join(unlisted, err)
}

// outside returns mounts without those in a hidden directory, where there is no place to mount them at.
func outside(mounts []isolate.Mount, hide []string) []isolate.Mount {
	return slices.DeleteFunc(mounts, func(m isolate.Mount) bool {
		return slices.ContainsFunc(hide, func(p string) bool { return m.Target != p && Within(m.Target, p) })
	})
}

// homeNotes returns a sentence for the user if the home directory is one of the frames of env, whose own files are
// read-only in the sandbox.
func homeNotes(env *Environment) []string {
	home := userHome()
	if !slices.Contains(env.Frames, home) {
		return nil
	}
	return []string{fmt.Sprintf("%s: files directly in it are read-only in the sandbox, because of the mount %s in it, and /dev/fuse cannot be opened",
		pathlist.Printable(home), Several(env.MountsBelow(home)))}
}

// asOnHost returns the read-only mounts that show directories of the host itself, not copies, in the sandbox
// of rec.
func asOnHost(rec *catalog.Record, env *Environment) (mounts []isolate.Mount) {
	for _, p := range env.Shown {
		if !hides(rec, p) && !isSocket(p) {
			mounts = append(mounts, isolate.Mount{Target: p, Source: p, ReadOnly: true, MayVanish: !Privileged()})
		}
	}
	return mounts
}

// showReal deals with a tree under which a filesystem was mounted since the sandbox was made, so that the
// kernel refuses an overlay of it. The caller shows the tree read-only, as on the host. If the tree holds the
// workspace, showReal returns in part the writable mount of the largest directory around the workspace
// without mounts. note is a sentence for the user.
func showReal(ctx context.Context, rec *catalog.Record, t catalog.Tree, v snapshot.View, b snapshot.Backend, env *Environment) (part []isolate.Mount, note string, err error) {
	list := env.MountsBelow(t.Path)
	note = Several(list) + " was mounted since " + rec.Name + " was made: " + pathlist.Printable(t.Path)
	if t.Path != Holder(rec) {
		return nil, note + " is shown as on the host, read-only", nil
	}
	dir := env.Clear(t.Path, rec.Workspace)
	if dir == "" {
		if own := env.MountsBelow(rec.Workspace); len(own) > 0 {
			list = own
		}
		return nil, "", MountedSince("mounting", rec.Workspace, list)
	}
	if v, err = ViewSubtree(ctx, b, v, t.Path, dir, true); err != nil {
		return nil, "", err
	}
	return []isolate.Mount{MountOf(dir, v)}, note + ", but for " + pathlist.Printable(dir) + ", is shown as on the host, read-only", nil
}

// covers reports whether path is one of trees, the trees of a sandbox, or lies below one of them.
func covers(trees map[string]bool, path string) bool {
	for t := range trees {
		if Within(path, t) {
			return true
		}
	}
	return false
}

// frames returns the directories that contain trees and are in none; the sandbox gets empty read-only ones
// with mount points. A frame at the sandbox's creation stays a frame, even if its mounts are gone and a new
// sandbox would have one tree instead.
func frames(env *Environment, trees []catalog.Tree) []string {
	list := slices.Clone(env.Frames)
	inTree := func(dir string) bool {
		return slices.ContainsFunc(trees, func(t catalog.Tree) bool { return Within(dir, t.Path) })
	}
	for _, t := range trees {
		for dir := t.Path; dir != "/"; {
			if dir = filepath.Dir(dir); inTree(dir) {
				break
			}
			if !slices.Contains(list, dir) {
				list = append(list, dir)
			}
		}
	}
	return list
}

// Confinement returns the part of a sandbox's container spec that depends on no file but the workspace: user and group
// ids, network, and the size of its filesystems in memory.
func Confinement(p catalog.Policy, workspace string) isolate.Spec {
	s := isolate.Spec{IDs: withOwners(ids(), workspace), BestEffort: p.BestEffort, TmpLimits: tmpLimits(p.Limits)}
	connect(&s, p.Network)
	return s
}

// copies returns a function that maps a path in a sandbox to a path at which the host can read the file: in
// the sandbox's copy of the tree if that is a plain directory, else in the real tree, which is an overlay's
// lower. roots has the copy of each tree, "" for an overlay.
func copies(roots map[string]string) func(string) string {
	return func(path string) string {
		for t := path; ; t = filepath.Dir(t) {
			if root, ok := roots[t]; ok && root != "" {
				return filepath.Join(root, strings.TrimPrefix(path, t))
			} else if ok || t == "/" {
				return path
			}
		}
	}
}

// Holder returns the path of the innermost tree of a sandbox that contains its workspace, or "" if none does.
func Holder(rec *catalog.Record) (tree string) {
	for _, t := range rec.Trees {
		if Within(rec.Workspace, t.Path) && len(t.Path) > len(tree) {
			tree = t.Path
		}
	}
	return tree
}

// Vanished reports whether the directory of a tree no longer exists, because its filesystem was unmounted. It
// returns false for the tree with the workspace. The sandbox's changes in the tree stay, in case the
// filesystem is mounted again.
func Vanished(t catalog.Tree, workspace string) bool {
	if Within(workspace, t.Path) {
		return false
	}
	_, err := os.Lstat(t.Path)
	return errors.Is(err, os.ErrNotExist)
}

// scratch returns the directory of the host that becomes a sandbox's /tmp. It counts for the disk limit if a
// backend supports that. It returns "" if /tmp becomes a tmpfs: for an ephemeral sandbox, or one whose disk
// limit cannot count the directory.
func (hf *Host) scratch(ctx context.Context, rec *catalog.Record) (string, error) {
	for _, t := range rec.Trees {
		b, err := hf.BackendOf(ctx, t)
		if err != nil {
			return "", err
		}
		if s, ok := b.(snapshot.TmpProvider); ok {
			return s.Scratch(ctx, t.Fork)
		}
	}
	if rec.Ephemeral || LimitsDisk(rec.Policy.Limits) {
		return "", nil
	}
	return hf.Tmp(rec), nil
}

// Tmp returns the directory in the state directory that the processes of a persistent sandbox have as /tmp.
func (hf *Host) Tmp(rec *catalog.Record) string { return filepath.Join(hf.cat.Path(rec.Name), "tmp") }

// MountOf returns the mount by which a container shows v, a fork or snapshot of a tree, at target.
func MountOf(target string, v snapshot.View) isolate.Mount {
	m := isolate.Mount{Target: target, Source: v.Path}
	if v.Served != nil {
		m.Source, m.Served = "", v.Served
	}
	if v.Overlay != nil {
		m.Source = ""
		o := v.Overlay
		m.Overlay = &isolate.Overlay{Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Metacopy: o.Metacopy, Nested: o.Nested}
		for _, s := range o.Base {
			m.Overlay.Base = append(m.Overlay.Base, s)
		}
	}
	return m
}

// ids returns the user and group ids of a sandbox's processes. For root it is a range of the sandbox's own,
// from 2^28 on, chosen by the process id of its supervisor, so that sandboxes that run at the same time
// differ. No id of the range is stored on disk.
func ids() isolate.IDs {
	if !Privileged() {
		return isolate.Same
	}
	const first, size = 1 << 28, 1<<16 + isolate.MaxFurther
	const ranges = (1<<32 - first) / size
	return isolate.Own(first + uint32(os.Getpid()%ranges)*size)
}

// withOwners adds to the ids of a sandbox of root the owner and the group of the workspace, and the user and
// group who called sudo. That matters where a directory service assigns ids of 65536 and more, which the
// sandbox would not have otherwise.
func withOwners(ids isolate.IDs, workspace string) isolate.IDs {
	var st unix.Stat_t
	if err := unix.Lstat(workspace, &st); err == nil {
		ids = ids.With(st.Uid).With(st.Gid)
	}
	for _, name := range []string{"SUDO_UID", "SUDO_GID"} {
		if id, err := strconv.ParseUint(os.Getenv(name), 10, 32); err == nil {
			ids = ids.With(uint32(id))
		}
	}
	return ids
}

// Hostname converts a sandbox's name to a host name: at most 63 letters, digits and hyphens
// (RFC 1123).
func Hostname(name string) string {
	b := []byte(name[:min(len(name), 63)])
	for i, c := range b {
		if c == '.' || c == '_' {
			b[i] = '-'
		}
	}
	return strings.TrimRight(string(b), "-")
}
