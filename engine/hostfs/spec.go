package hostfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/isolate"
)

// Spec says what the processes of a sandbox may see and do, and in notes what of
// it is not as it was when the sandbox was made. real is where the secrets of the
// real trees are.
func (hf *Host) Spec(ctx context.Context, rec *catalog.Record, real func() SecretPaths) (spec isolate.Spec, notes []string, err error) {
	env, err := Survey(rec.Workspace, hf.cat.Dir(), Privileged())
	if err != nil {
		return isolate.Spec{}, nil, err
	}
	hide := []string{hf.cat.Dir()}
	mounts := make([]isolate.Mount, 0, len(rec.Trees)+len(env.Shown))
	skeletons := make([]isolate.Mount, 0, len(env.Frames)+len(rec.Trees)+len(env.Shown))
	bare := map[string]bool{} // trees that are shown as they really are
	roots := map[string]string{}
	for _, t := range rec.Trees {
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
		if m.Overlay != nil && len(m.Overlay.Base) == 0 && !Privileged() && env.MountedBeneath(t.Path) {
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
		if h, ok := b.(snapshot.Hider); ok {
			hide = append(hide, h.Hidden()...)
		}
	}
	for _, f := range frames(env, rec.Trees) {
		if !covers(bare, f) {
			skeletons = append(skeletons, isolate.Mount{Target: f, Skeleton: f})
		}
	}
	mounts = append(skeletons, mounts...)
	for _, p := range env.Shown {
		mounts = append(mounts, isolate.Mount{Target: p, Source: p, ReadOnly: true, MayVanish: !Privileged()})
	}
	slices.SortStableFunc(mounts, func(a, b isolate.Mount) int { return strings.Compare(a.Target, b.Target) })
	tmp, err := hf.scratch(ctx, rec)
	if err != nil {
		return isolate.Spec{}, nil, err
	}
	s := Confinement(rec.Policy)
	s.Mounts, s.Tmp, s.Hostname = mounts, tmp, Hostname(rec.Name)
	s.Hide = hidden(hiding{
		real: real(), own: hide, also: rec.Policy.Hide, expose: rec.Policy.Expose, mounts: env.mounts, roots: roots,
	}, userHome(), rec.Workspace)
	return s, notes, nil
}

// asReal is for a tree that has got something mounted beneath it: it is shown as it
// really is. Of the tree that holds the workspace, the part around that which has
// nothing mounted beneath it is mounted on top, as the sandbox has it.
func showReal(ctx context.Context, rec *catalog.Record, t catalog.Tree, v snapshot.View, b snapshot.Backend, env *Environment) (part []isolate.Mount, note string, err error) {
	list := env.MountsBeneath(t.Path)
	note = Several(list) + " was mounted since " + rec.Name + " was made: " + pathlist.Printable(t.Path)
	if t.Path != Holder(rec) {
		return nil, note + " is shown as it really is, and is read-only", nil
	}
	dir := env.Clear(t.Path, rec.Workspace)
	if dir == "" {
		if own := env.MountsBeneath(rec.Workspace); len(own) > 0 {
			list = own
		}
		return nil, "", MountedSince("mounting", rec.Workspace, list)
	}
	if v, err = ViewSubtree(ctx, b, v, t.Path, dir, true); err != nil {
		return nil, "", err
	}
	return []isolate.Mount{MountOf(dir, v)}, note + ", but for " + pathlist.Printable(dir) + ", is shown as it really is, and is read-only", nil
}

// covers reports whether a path is one of trees or lies in one.
func covers(trees map[string]bool, path string) bool {
	for t := range trees {
		if Within(path, t) {
			return true
		}
	}
	return false
}

// frames are the directories that hold trees, and are in none. What was a frame
// when the sandbox was made still is one, though what was mounted beneath it has
// gone and a sandbox made now would have all of it as a tree.
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

// Confinement is the part of a sandbox's spec that is known before its trees.
func Confinement(p catalog.Policy) isolate.Spec {
	s := isolate.Spec{IDs: ids(), BestEffort: p.BestEffort}
	connect(&s, p.Network)
	return s
}

// copies says where a sandbox's copy of a path can be looked at from outside:
// in the copy where that is a plain directory, in the real tree beneath an
// overlay. roots holds the copies of the trees, "" for overlays.
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

// Holder is the tree that the workspace is in: the one deepest down.
func Holder(rec *catalog.Record) (tree string) {
	for _, t := range rec.Trees {
		if Within(rec.Workspace, t.Path) && len(t.Path) > len(tree) {
			tree = t.Path
		}
	}
	return tree
}

// Vanished: the place of a tree is not there any more, because its filesystem
// was unmounted, and it is not one that the sandbox is about. What the sandbox
// changed in it stays, for when it comes back.
func Vanished(t catalog.Tree, workspace string) bool {
	if Within(workspace, t.Path) {
		return false
	}
	_, err := os.Lstat(t.Path)
	return errors.Is(err, os.ErrNotExist)
}

// scratch is the host's directory behind a sandbox's /tmp: one that counts for the
// limit of its disk, where a backend has it. An ephemeral one has a tmpfs else, for "".
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
	if rec.Ephemeral {
		return "", nil
	}
	return hf.Tmp(rec), nil
}

// Tmp is the directory behind a kept sandbox's /tmp in the state directory.
func (hf *Host) Tmp(rec *catalog.Record) string { return filepath.Join(hf.cat.Path(rec.Name), "tmp") }

func MountOf(target string, v snapshot.View) isolate.Mount {
	m := isolate.Mount{Target: target, Source: v.Path}
	if v.Served != nil {
		m.Source, m.Served = "", v.Served
	}
	if v.Overlay != nil {
		m.Source = ""
		o := v.Overlay
		m.Overlay = &isolate.Overlay{Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Nested: o.Nested}
		for _, s := range o.Base {
			m.Overlay.Base = append(m.Overlay.Base, s)
		}
	}
	return m
}

// ids gives a sandbox of root's a range of ids of its own. Its keeper's process
// id chooses among the ranges from 2^28 on, so that sandboxes that live at the
// same time have different ones; the ids are nowhere on disk.
func ids() isolate.IDs {
	if !Privileged() {
		return isolate.Same
	}
	const first, ranges = 1 << 28, (1<<32 - 1<<28) >> 16
	return isolate.Own(first + uint32(os.Getpid()%ranges)<<16)
}

// Hostname makes a host name of a sandbox's name: at most 63 letters, digits
// and hyphens (RFC 1123).
func Hostname(name string) string {
	b := []byte(name[:min(len(name), 63)])
	for i, c := range b {
		if c == '.' || c == '_' {
			b[i] = '-'
		}
	}
	return strings.TrimRight(string(b), "-")
}
