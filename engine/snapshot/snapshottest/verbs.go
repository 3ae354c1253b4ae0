//go:build linux

package snapshottest

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A verb is a method of a backend that makes or removes something, as the tests of failures call it. They
// call it on the tree of prepareTree, which has a snapshot named base and a fork named work.
type verb struct {
	// ready prepares the verb for an id; nil: no preparation.
	ready func(x *workbench, id string)
	do    func(ctx context.Context, b snapshot.Backend, tree snapshot.Tree, id string) error
	// makes is the kind of object that the verb makes under the id.
	makes made
	// offered reports whether the backend has the verb; nil: every backend has it.
	offered func(snapshot.Backend) bool
	// inUse is set if the view of the fork work is open during the call.
	inUse bool
}

type made int

const (
	nothing made = iota
	aSnapshot
	aFork
)

func verbs() map[string]verb {
	return map[string]verb{
		"capture": {
			makes: aSnapshot, ready: (*workbench).stamp,
			do: func(ctx context.Context, b snapshot.Backend, tree snapshot.Tree, id string) error {
				_, err := b.Capture(ctx, tree, snapshot.ID(id))
				return err
			},
		},
		"fork": {makes: aFork, do: func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, id string) error {
			_, err := b.Fork(ctx, "base", snapshot.ForkID(id))
			return err
		}},
		"seal":        {makes: aSnapshot, do: sealWork(snapshot.Idle)},
		"seal in use": {makes: aSnapshot, do: sealWork(snapshot.InUse), inUse: true},
		"remove": {
			ready: func(x *workbench, id string) { x.capture(snapshot.ID(id)) },
			do: func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, id string) error {
				return b.Remove(ctx, snapshot.ID(id))
			},
		},
		"remove a fork": {
			ready: func(x *workbench, id string) { x.fork("base", snapshot.ForkID(id)) },
			do: func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, id string) error {
				return b.RemoveFork(ctx, snapshot.ForkID(id))
			},
		},
		"sweep": {
			ready: func(x *workbench, id string) {
				x.fork("base", snapshot.ForkID(id))
				x.must(x.b.RemoveFork(x.Context(), snapshot.ForkID(id)))
			},
			do: func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, _ string) error {
				return b.Sweep(ctx)
			},
		},
		"clone": {
			makes: aFork, ready: (*workbench).stamp,
			do: func(ctx context.Context, b snapshot.Backend, tree snapshot.Tree, id string) error {
				_, _, err := as[snapshot.Cloner](b).Clone(ctx, tree, snapshot.ID(id), snapshot.ForkID(id))
				return err
			},
			offered: is[snapshot.Cloner],
		},
		"limit": {
			ready: func(x *workbench, id string) { x.fork("base", snapshot.ForkID(id)) },
			do: func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, id string) error {
				return as[snapshot.Limiter](b).LimitFork(ctx, snapshot.ForkID(id), snapshot.DiskLimit{Bytes: 1 << 30})
			},
			offered: limitsBytes,
		},
		"stock": { // the snapshot has no ready-made forks yet
			ready: func(x *workbench, id string) {
				x.stamp(id)
				x.capture(snapshot.ID(id))
			},
			do: func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, id string) error {
				return as[snapshot.Preforker](b).Prefork(ctx, snapshot.ID(id), 2)
			},
			offered: is[snapshot.Preforker],
		},
	}
}

func sealWork(use snapshot.Use) func(context.Context, snapshot.Backend, snapshot.Tree, string) error {
	return func(ctx context.Context, b snapshot.Backend, _ snapshot.Tree, id string) error {
		_, err := b.Seal(ctx, "work", snapshot.ID(id), use)
		return err
	}
}

func is[T any](b snapshot.Backend) bool { _, ok := b.(T); return ok }

// as returns the backend b as the optional interface T, such as [snapshot.Limiter], and panics if b does not
// implement it.
func as[T any](b snapshot.Backend) T {
	t, ok := b.(T)
	if !ok {
		panic("the backend does not have the optional power under test")
	}
	return t
}

// prepareTree fills the real tree with some files, captures it as the snapshot base, and makes a fork of that
// named work with changes. Tests of failures start from this.
func prepareTree(x *workbench) {
	x.Helper()
	x.write("kept", "real")
	x.write("dir/edited", "real")
	x.write("gone", "real")
	x.must(os.Link(x.place.Tree.Path+"/kept", x.place.Tree.Path+"/dir/linked"))
	x.must(os.Symlink("kept", x.place.Tree.Path+"/link"))
	x.capture("base")
	x.in(x.fork("base", "work").View, func(dir string) {
		x.put(dir, "dir/edited", "work")
		x.must(os.Remove(dir + "/gone"))
		x.put(dir, "dir/new", "work")
		x.must(os.Mkdir(dir+"/empty", 0o755))
	})
}

// isReal checks that a view has the content of the snapshot called base, as prepareTree made it; isWork
// checks a view for that of the fork called work. when describes the moment in failures.
func (x *workbench) isReal(v snapshot.View, when string) {
	x.Helper()
	x.state(v, when, map[string]string{"kept": "real", "dir/edited": "real", "gone": "real", "dir/linked": "real", "link": "real", "dir/new": ""})
}

func (x *workbench) isWork(v snapshot.View, when string) {
	x.Helper()
	x.state(v, when, map[string]string{"kept": "real", "dir/edited": "work", "gone": "", "dir/linked": "real", "link": "real", "dir/new": "work"})
}

func (x *workbench) state(v snapshot.View, when string, want map[string]string) {
	x.Helper()
	x.in(v, func(dir string) {
		for name, text := range want {
			got, err := os.ReadFile(dir + "/" + name)
			if string(got) != text || (err == nil) != (text != "") {
				x.Errorf("%s: %s holds %q, want %q (%v)", when, name, short(string(got)), text, err)
			}
		}
	})
}

// intact checks that the snapshot called base and the fork called work have not changed. when describes the
// moment in failures.
func (x *workbench) intact(when string) {
	x.Helper()
	x.isReal(x.snap("base"), when+", the base")
	x.isWork(x.view("work"), when+", the fork")
}

// look reports whether the backend has the snapshot or fork that its method called name makes under id, and
// checks the content. when describes the moment in failures.
func (x *workbench) look(name string, id, when string) bool {
	x.Helper()
	v := verbs()[name]
	var view snapshot.View
	var err error
	switch v.makes {
	case nothing:
		return false
	case aSnapshot:
		var s snapshot.Snapshot
		s, err = x.b.Lookup(x.Context(), snapshot.ID(id))
		view = s.View
	case aFork:
		var f snapshot.Fork
		f, err = x.b.LookupFork(x.Context(), snapshot.ForkID(id))
		view = f.View
	}
	if err != nil {
		if !errors.Is(err, errs.ErrNotFound) && !errors.Is(err, errs.ErrCorrupt) {
			x.Errorf("%s: looking up %s returns %v", when, id, err)
		}
		return false
	}
	if name == "seal" || name == "seal in use" {
		x.isWork(view, when+", the made object")
	} else {
		x.isReal(view, when+", the made object")
	}
	return true
}

// removeBoth removes the snapshot and the fork with this id, and checks that the backend lists neither. when
// describes the moment in failures.
func (x *workbench) removeBoth(id, when string) {
	x.Helper()
	x.must(x.b.RemoveFork(x.Context(), snapshot.ForkID(id)))
	x.must(x.b.Remove(x.Context(), snapshot.ID(id)))
	snaps, forks, err := x.b.List(x.Context())
	x.must(err)
	for _, s := range snaps {
		if string(s) == id {
			x.Errorf("%s: the snapshot %s is still listed after Remove", when, id)
		}
	}
	for _, f := range forks {
		if string(f) == id {
			x.Errorf("%s: the fork %s is still listed after RemoveFork", when, id)
		}
	}
}
