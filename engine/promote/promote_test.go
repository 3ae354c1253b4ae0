package promote_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestApplyMakesTheRealTreeEqualToTheSandbox(t *testing.T) {
	for name, base := range map[string]func(*world) promote.Base{"frozen": (*world).frozen, "live": (*world).live} {
		t.Run(name, func(t *testing.T) {
			before, after := scene()
			w := newWorld(t, treetest.Dir(t), before, after)
			r, err := w.apply(t, base(w))
			must(t, err)
			if r.Applied < 20 || r.ID == "" {
				t.Errorf("only %d changes were applied", r.Applied)
			}
			w.arrived(t)
			// The second time there is nothing to do, and nothing has drifted.
			b := base(w)
			b.Known = r.Stamps
			if r, err = w.apply(t, b); err != nil || b.Frozen && r.Applied != 0 {
				t.Errorf("again: %+v, %v", r, err)
			}
		})
	}
}

// With this many files, the disk starts to write while others are built. In make test it starts after a tenth
// of the files.
func TestThousandsOfFilesArriveAndGoBack(t *testing.T) {
	treetest.OncePerRun(t)
	w := newWorld(t, treetest.Dir(t), nil, nil)
	files := 2700
	if !treetest.Long(t) {
		files /= 10
		t.Cleanup(promote.SyncEvery(250))
	}
	for i := range files {
		for _, side := range []struct {
			tree *os.File
			text string
		}{{w.real, "old"}, {w.sandbox, "the new one"}} {
			dir := filepath.Join(side.tree.Name(), fmt.Sprint(i%10))
			must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(side.text), 0o644)))
		}
	}
	before := treetest.Manifest(t, w.real.Name(), treetest.Options{NoTimes: true})
	time.Sleep(diff.Racy)
	base := promote.Base{Taken: time.Now()}
	r, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, base), promote.Options{Base: base, KeepUndo: true})
	must(t, err)
	if r.Applied < files {
		t.Errorf("%d of %d changes were applied", r.Applied, files)
	}
	treetest.Compare(t, w.sandbox, w.real, treetest.Options{NoDirTimes: true})
	_, err = promote.Undo(t.Context(), w.state(), r.ID)
	must(t, err)
	w.clean(t)
	if lines := treetest.Lines(before, treetest.Manifest(t, w.real.Name(), treetest.Options{NoTimes: true})); len(lines) > 0 {
		t.Errorf("an undo leaves %q", lines)
	}
}

func TestApplyPromotesRandomTreesOnEveryFilesystem(t *testing.T) {
	treetest.NeedRoot(t)
	for fs, top := range map[string]func() string{
		"ext4":  func() string { return treetest.Dir(t) },
		"btrfs": func() string { return treetest.Btrfs(t) },
	} {
		t.Run(fs, func(t *testing.T) {
			dir, applied := top(), 0
			seeds := treetest.Budget(t, 4, 8)
			for seed := range uint64(seeds) {
				writer := treetest.NewWriter(seed, treetest.Powers{Root: true})
				before := append(writer.Script(150), writer.Deep()...)
				sub := filepath.Join(dir, fmt.Sprint(seed))
				must(t, os.Mkdir(sub, 0o755))
				w := newWorld(t, sub, before, writer.Script(120))
				old := manifest(t, w)
				base := w.frozen()
				if seed%2 == 1 {
					base = w.live()
				}
				ctx := treetest.WithFaults(t.Context(), func(step string) error {
					if step == "commit" {
						return errRehearsed
					}
					return nil
				})
				r, err := promote.Apply(ctx, w.target(), w.source(), w.changes(t, base), options(base))
				if now := treetest.Lines(old, manifest(t, w)); err == nil || len(now) > 0 {
					t.Fatalf("seed %d: taken back, but changed %q, %v", seed, now, err)
				}
				base.Known = r.Stamps
				o := options(base)
				o.KeepUndo = true
				r, err = promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, base), o)
				if errors.Is(err, errs.ErrConflict) { // a link that the changes cannot show
					if now := treetest.Lines(old, manifest(t, w)); len(now) > 0 {
						t.Errorf("seed %d: refused, but changed %q", seed, now)
					}
					continue
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				applied++
				// The comparison does not see links that were exchanged without a change of
				// any link count; see package diff.
				treetest.Compare(t, w.sandbox, w.real, treetest.Options{
					NoDirTimes: true, NoLinks: true,
					Skip: func(path string) bool { return slices.Contains(r.Skipped, path) },
				})
				for _, c := range w.changes(t, promote.Base{}) {
					if (c.Kind != diff.Modified || c.What&^(diff.Time|diff.Links) != 0) && !slices.Contains(r.Skipped, c.Path) {
						t.Errorf("still to be applied: %q %v %v", c.Path, c.Kind, c.What)
					}
				}
				_, err = promote.Undo(t.Context(), w.state(), r.ID)
				must(t, err)
				w.clean(t)
				if now := treetest.Lines(old, manifest(t, w)); len(now) > 0 {
					t.Errorf("undone, but changed %q", now)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if applied < seeds/2 {
				t.Errorf("only %d of the trees could be applied", applied)
			}
		})
	}
}

func TestSomeChangesAreAppliedBeforeTheRest(t *testing.T) {
	before, after := scene()
	w := newWorld(t, treetest.Dir(t), before, after)
	chosen := selected(w.changes(t, w.frozen()), "becomes-dir", "becomes-dir/y", "gone", "new", "new/deep", "new/deep/z")
	first, err := promote.Apply(t.Context(), w.target(), w.source(), chosen, options(w.frozen()))
	must(t, err)
	if _, err := os.Lstat(filepath.Join(w.real.Name(), "new/zz")); err == nil {
		t.Error("new/zz came too")
	}
	w.clean(t)
	// A second call applies the rest.
	b := w.frozen()
	b.Known = first.Stamps
	_, err = w.apply(t, b)
	must(t, err)
	treetest.Compare(t, w.sandbox, w.real, treetest.Options{NoDirTimes: true, NoLinks: true})
}

func TestApplyContinuesAfterAnEarlierApply(t *testing.T) {
	for name, base := range map[string]func(*world) promote.Base{"frozen": (*world).frozen, "live": (*world).live} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10), file("b", 3, 10)})
			r, err := w.apply(t, base(w))
			must(t, err)
			time.Sleep(diff.Racy)
			must(t, os.WriteFile(w.sandbox.Name()+"/a", []byte("third"), 0o644))
			must(t, os.WriteFile(w.sandbox.Name()+"/b", []byte("second"), 0o644))
			b := base(w)
			if _, err := w.apply(t, b); !errors.Is(err, errs.ErrDrifted) {
				t.Errorf("without the stamps: %v", err)
			}
			b.Known = r.Stamps
			_, err = w.apply(t, b)
			must(t, err)
			w.arrived(t)
		})
	}
}

func TestUndoBringsTheOldTreeBackUnlessItsResultWasChanged(t *testing.T) {
	before, after := scene()
	w := newWorld(t, treetest.Dir(t), before, after)
	old := manifest(t, w)
	o := options(w.frozen())
	o.KeepUndo = true
	r, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o)
	must(t, err)
	if rec, err := promote.Recover(t.Context(), w.state()); err != nil || len(rec) > 0 {
		t.Errorf("recover touches what was kept: %v %v", rec, err)
	}
	extra := filepath.Join(w.real.Name(), "new/deep/mine")
	must(t, os.WriteFile(extra, nil, 0o644))
	now := manifest(t, w)
	if _, err := promote.Undo(t.Context(), w.state(), r.ID); !errors.Is(err, errs.ErrDrifted) {
		t.Errorf("undo over a change: %v", err)
	}
	if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
		t.Errorf("the refused undo changed %q", l)
	}
	must(t, os.Remove(extra))
	stamp := time.Unix(second+1, (second+1)%1000*1000)
	must(t, os.Chtimes(filepath.Dir(extra), stamp, stamp))
	_, err = promote.Undo(t.Context(), w.state(), r.ID)
	must(t, err)
	if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
		t.Errorf("after undo: %q", l)
	}
	w.clean(t)
	if _, err := promote.Undo(t.Context(), w.state(), r.ID); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("undone twice: %v", err)
	}
}
