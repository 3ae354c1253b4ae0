package plain_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A broken backend is the plain backend with some methods replaced.
type broken struct {
	snapshot.Backend
	place   snapshot.Place
	facts   func(*snapshot.Facts)
	capture func(b *broken, ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error)
	fork    func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error)
	seal    func(b *broken, ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error)
	remove  func(b *broken, ctx context.Context, id snapshot.ID) error
	list    func([]snapshot.ID) []snapshot.ID
}

func (b *broken) Facts() snapshot.Facts {
	f := b.Backend.Facts()
	if b.facts != nil {
		b.facts(&f)
	}
	return f
}

func (b *broken) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	if b.capture != nil {
		return b.capture(b, ctx, tree, id)
	}
	return b.Backend.Capture(ctx, tree, id)
}

func (b *broken) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	if b.fork != nil {
		return b.fork(b, ctx, from, id)
	}
	return b.Backend.Fork(ctx, from, id)
}

func (b *broken) Seal(ctx context.Context, f snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error) {
	if b.seal != nil {
		return b.seal(b, ctx, f, id, use)
	}
	return b.Backend.Seal(ctx, f, id, use)
}

func (b *broken) Remove(ctx context.Context, id snapshot.ID) error {
	if b.remove != nil {
		return b.remove(b, ctx, id)
	}
	return b.Backend.Remove(ctx, id)
}

func (b *broken) List(ctx context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	s, f, err := b.Backend.List(ctx)
	if b.list != nil {
		s = b.list(s)
	}
	return s, f, err
}

// breaking returns a subject whose backends mutate has changed.
func breaking(mutate func(b *broken) snapshot.Backend) snapshottest.Subject {
	s := subject()
	s.Driver.Open = func(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
		inner, err := plain.Open(ctx, place)
		if err != nil {
			return nil, err
		}
		return mutate(&broken{Backend: inner, place: place}), nil
	}
	return s
}

func claiming(change func(*snapshot.Facts)) func(*broken) snapshot.Backend {
	return func(b *broken) snapshot.Backend { b.facts = change; return b }
}

func forking(fork func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error)) func(*broken) snapshot.Backend {
	return func(b *broken) snapshot.Backend { b.fork = fork; return b }
}

// afterFork changes the tree of each fork.
func afterFork(change func(tree string) error) func(*broken) snapshot.Backend {
	return forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
		f, err := b.Backend.Fork(ctx, from, id)
		if err != nil {
			return f, err
		}
		return f, change(f.View.Path)
	})
}

func removing(remove func(b *broken, ctx context.Context, id snapshot.ID) error) func(*broken) snapshot.Backend {
	return func(b *broken) snapshot.Backend { b.remove = remove; return b }
}

// A fixedChanges yields a fixed list, whatever has changed.
type fixedChanges struct {
	*broken
	all []snapshot.Candidate
}

func (b fixedChanges) ListChanges(context.Context, snapshot.ID, snapshot.ForkID) iter.Seq2[snapshot.Candidate, error] {
	return b.emit
}

func (b fixedChanges) ListChangesBetween(context.Context, snapshot.ID, snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return b.emit
}

func (b fixedChanges) DetectDrift(context.Context, snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return b.emit
}

func (b fixedChanges) Usage(context.Context, snapshot.ForkID) (snapshot.Bytes, error) { return 0, nil }

func (b fixedChanges) emit(yield func(snapshot.Candidate, error) bool) {
	for _, t := range b.all {
		if !yield(t, nil) {
			return
		}
	}
}

func firstFile(tree string, do func(path string) error) error {
	return filepath.WalkDir(tree, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return errors.Join(do(path), filepath.SkipAll)
	})
}

// TestSuiteFindsBrokenBackends breaks one method in each line, and the named promise must fail.
func TestSuiteFindsBrokenBackends(t *testing.T) {
	treetest.NeedRoot(t) // some promises need a small filesystem
	for _, c := range []struct {
		promise string
		mutate  func(*broken) snapshot.Backend
	}{
		{"a frozen base ignores later writes, a live one shows them", claiming(func(f *snapshot.Facts) { f.Frozen = false })},
		{"a frozen base ignores later writes, a live one shows them", forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
			f, err := b.Backend.Fork(ctx, from, id)
			f.View.Path = b.place.Tree.Path
			return f, err
		})},
		{"a directory of the base is renamed in one step exactly as claimed", claiming(func(f *snapshot.Facts) { f.DirRename = false })},
		{"hard links stay linked or part exactly as claimed", claiming(func(f *snapshot.Facts) { f.PartsLinks = true })},
		{"a snapshot and its fork show the tree", claiming(func(f *snapshot.Facts) { f.Served = true })},
		{"a byte changed costs a block or a file as claimed", claiming(func(f *snapshot.Facts) { f.Unit = snapshot.ByBlock })},
		{"the cost of a fork is constant exactly as claimed", claiming(func(f *snapshot.Facts) { f.CopiesWhole = false })},
		{"the time of a capture divides earlier changes from later ones", func(b *broken) snapshot.Backend {
			b.capture = func(b *broken, ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
				s, err := b.Backend.Capture(ctx, tree, id)
				s.Taken = s.Taken.Add(-time.Second)
				return s, err
			}
			return b
		}},
		{"forks are independent of each other, their base and the real tree", forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
			f, err := b.Backend.Fork(ctx, from, id)
			f.View.Path = filepath.Join(b.place.Dir, "snapshots", string(from), "tree")
			return f, err
		})},
		{"sealing an idle fork keeps its content and the fork", func(b *broken) snapshot.Backend {
			b.seal = func(b *broken, ctx context.Context, _ snapshot.ForkID, id snapshot.ID, _ snapshot.Use) (snapshot.Snapshot, error) {
				return b.Backend.Capture(ctx, b.place.Tree, id)
			}
			return b
		}},
		{"a script has the same result on a fork as on a plain directory", afterFork(func(tree string) error {
			return firstFile(tree, func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) })
		})},
		{"a script has the same result on a fork as on a plain directory", afterFork(func(tree string) error {
			return firstFile(tree, func(path string) error { return os.Chown(path, 7, 7) })
		})},
		{"a directory without the ownership mark is never removed", removing(func(b *broken, _ context.Context, id snapshot.ID) error {
			return os.RemoveAll(filepath.Join(b.place.Dir, "snapshots", string(id)))
		})},
		{"removing follows no symbolic link out of the data", removing(func(b *broken, ctx context.Context, id snapshot.ID) error {
			if to, err := os.Readlink(filepath.Join(b.place.Dir, "snapshots", string(id))); err == nil {
				return os.RemoveAll(to)
			}
			return b.Backend.Remove(ctx, id)
		})},
		{"removing is final and may be repeated", removing(func(b *broken, ctx context.Context, id snapshot.ID) error {
			if _, err := b.Lookup(ctx, id); err != nil {
				return err
			}
			return b.Backend.Remove(ctx, id)
		})},
		{"of many calls with one id exactly one succeeds", forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
			f, err := b.Backend.Fork(ctx, from, id)
			if errors.Is(err, errs.ErrExists) {
				err = nil
			}
			return f, err
		})},
		{"an unknown id is not found", forking(func(*broken, context.Context, snapshot.ID, snapshot.ForkID) (snapshot.Fork, error) {
			return snapshot.Fork{}, errors.New("something went wrong")
		})},
		{"the list is sorted and complete", func(b *broken) snapshot.Backend {
			b.list = func(ids []snapshot.ID) []snapshot.ID { slices.Reverse(ids); return ids }
			return b
		}},
		{"a context cancelled before it begins", forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
			return b.Backend.Fork(context.WithoutCancel(ctx), from, id)
		})},
		{"fork: each step fails once and nothing is lost", forking(func(b *broken, _ context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
			return b.Backend.Fork(context.Background(), from, id) // without fault points
		})},
		{"fork: each step fails once and nothing is lost", incomplete},
		{"fork: a full disk is reported as one, and nothing is lost", forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
			f, err := b.Backend.Fork(ctx, from, id)
			if errors.Is(err, errs.ErrNoSpace) {
				err = &errs.Error{Op: "forking", Kind: errs.ErrCorrupt}
			}
			return f, err
		})},
		{"the changes of a fork are listed completely", func(b *broken) snapshot.Backend { return fixedChanges{b, nil} }},
		{"the changes between two snapshots are listed completely", func(b *broken) snapshot.Backend { return fixedChanges{b, nil} }},
		{"an unchanged fork lists almost no changes", func(b *broken) snapshot.Backend {
			return fixedChanges{b, []snapshot.Candidate{{Path: ".", Tree: true}}}
		}},
		{"a fork's usage counts only data that its base lacks", func(b *broken) snapshot.Backend { return fixedChanges{b, nil} }},
		{"a change since a seal is reported, and no other", func(b *broken) snapshot.Backend { return neverChanged{b} }},
		{"the drift of the real tree is listed completely", func(b *broken) snapshot.Backend { return fixedChanges{b, nil} }},
		{"an unchanged real tree lists almost no drift", func(b *broken) snapshot.Backend {
			return fixedChanges{b, []snapshot.Candidate{{Path: "dir1", Tree: true}}}
		}},
		{"a frozen snapshot has the real tree's inodes exactly as claimed", func(b *broken) snapshot.Backend {
			b.facts = func(f *snapshot.Facts) { f.RealInodes = true }
			return b
		}},
	} {
		if !snapshottest.Fails(t, breaking(c.mutate), c.promise) {
			t.Errorf("the suite does not notice a backend that breaks %q", c.promise)
		}
	}
}

// neverChanged reports each fork as unchanged since its last seal.
type neverChanged struct{ *broken }

func (neverChanged) ChangedSinceSeal(context.Context, snapshot.ID, snapshot.ForkID) (changed, known bool) {
	return false, true
}

// incomplete makes LookupFork find a fork before it is complete.
func incomplete(b *broken) snapshot.Backend {
	return forking(func(b *broken, ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
		f, err := b.Backend.Fork(context.Background(), from, id)
		if err != nil {
			return f, err
		}
		edited := filepath.Join(f.View.Path, "dir/edited")
		text, _ := os.ReadFile(edited)
		if err := os.Remove(edited); err != nil {
			return f, err
		}
		if err := fault.Point(ctx, "the last file"); err != nil {
			return f, &errs.Error{Op: "forking", Kind: errs.KindOf(err), Err: err}
		}
		return f, os.WriteFile(edited, text, 0o644)
	})(b)
}

func TestSuiteFindsRemainsOfAKilledFork(t *testing.T) {
	const promise = "fork: killed at each step, it leaves sound data"
	if !snapshottest.Fails(t, breaking(incomplete), promise) {
		t.Error("the suite does not notice an incomplete fork")
	}
}
