package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// promote promotes a sandbox, and checks its conflicts.
func (c *crossing) promote(a int) {
	c.promotions++
	box, name := c.boxes[a], boxName(a)
	var overlaps, seen []string
	for path, mine := range box.mine {
		at := filepath.Join(c.b.workspace, path)
		switch {
		case c.real[path] == mine:
		case c.warm && c.real[path] == box.atFork[path] && box.began[path] != box.atFork[path]:
			seen = append(seen, at)
		case c.real[path] != box.began[path]:
			overlaps = append(overlaps, at)
		case c.warm && box.began[path] != box.atFork[path] || box.gone[path]:
			seen = append(seen, at)
		}
	}
	_, err := c.b.Reconcile.Promote(c.b.t.Context(), name, reconcile.PromoteOptions{})
	c.note("promote %s: %v", name, err)
	if box.resident != nil && box.moved && !c.place.frozen && errors.Is(err, errs.ErrBusy) {
		c.sleep(a) // what it has renamed is copied out of the real tree, and is not in use
		c.must(c.b.Supervise.Stop(c.b.t.Context(), name))
		_, err = c.b.Reconcile.Promote(c.b.t.Context(), name, reconcile.PromoteOptions{})
		c.note("asleep: %v", err)
		defer c.wake(a)
	}
	// The real file changed while the sandbox was mounted and before it did, which it may not have seen; or both had
	// removed it before.
	for _, path := range seen {
		if err != nil && strings.Contains(err.Error(), path+": ") {
			overlaps = append(overlaps, path)
		}
	}
	slices.Sort(overlaps)
	theirs := c.r.IntN(2) == 0
	switch {
	case len(overlaps) == 0 && err != nil:
		c.b.t.Errorf("%s conflicts with nothing: %v", name, err)
		return
	case len(overlaps) > 0 && !errors.Is(err, errs.ErrConflict):
		c.b.t.Errorf("%s overlaps at %v: %v", name, overlaps, err)
		return
	case len(overlaps) > 0:
		for _, path := range overlaps {
			if !strings.Contains(err.Error(), path+": ") {
				c.b.t.Errorf("%s is not among the conflicts: %v", path, err)
			}
		}
		if n := strings.Count(err.Error(), c.b.workspace+"/"); n != len(overlaps) {
			c.b.t.Errorf("conflicts beyond %v: %v", overlaps, err)
		}
		o := reconcile.PromoteOptions{Mine: overlaps}
		if theirs {
			o = reconcile.PromoteOptions{Theirs: overlaps}
		}
		_, err = c.b.Reconcile.Promote(c.b.t.Context(), name, o)
		if c.note("answered, theirs %v: %v", theirs, err); err != nil {
			c.b.t.Errorf("an answered promotion: %v", err)
			return
		}
	}
	was := c.real.of(a)
	for key := range was {
		delete(c.real, key)
	}
	for key, value := range box.own {
		if text, line := strings.CutSuffix(key, fmt.Sprint(":", a)); line && value != was[key] {
			c.changed[text] = len(c.log)
		}
		c.real[key] = value
	}
	for path, mine := range box.mine {
		if !theirs || !slices.Contains(overlaps, filepath.Join(c.b.workspace, path)) {
			c.real.set(path, mine)
		}
		box.began[path], box.atFork[path] = mine, mine
		delete(box.gone, path)
	}
	clear(box.mine)
	box.moved, box.unseen = false, false
	c.compare()
}

// compare checks the whole workspace.
func (c *crossing) compare() {
	want := crossingTree{}
	for text := range texts {
		want[fmt.Sprint("text", text)] = "file 644 " + c.text(text)
	}
	for key, value := range c.real {
		if !strings.Contains(key, ":") {
			want[key] = value
		}
	}
	got := crossingTree{}
	c.must(filepath.WalkDir(c.b.workspace, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(c.b.workspace, path)
		switch {
		case err != nil || rel == "." || rel == "d":
			return err
		case rel == "others":
			return fs.SkipDir
		}
		got[rel], err = nodeAt(path, e)
		return err
	}))
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] {
			c.b.t.Errorf("%s is %q, want %q", path, got[path], want[path])
		}
		delete(got, path)
	}
	if len(got) > 0 {
		c.b.t.Errorf("more files than expected: %v", got)
	}
}
