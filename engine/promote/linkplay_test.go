package promote_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// linkPlay makes random changes of a tree with few names, so that most files get several names (hard links). Two with
// the same seed make the same changes.
type linkPlay struct {
	*rand.Rand
	clock int64
}

func newLinkPlay(seed uint64) *linkPlay {
	return &linkPlay{rand.New(rand.NewPCG(seed, 0x117)), second}
}

func (p *linkPlay) path(dir string) string {
	in := []string{"", "d", "d/sub", "e"}[p.IntN(4)]
	return filepath.Join(dir, in, []string{"1", "2", "3", "4"}[p.IntN(4)])
}

// change makes n changes in dir. Many of those drawn are impossible, such as a link to a missing file; they change
// nothing.
func (p *linkPlay) change(dir string, n int) {
	for range n {
		p.clock++
		from, to, mode := p.path(dir), p.path(dir), []fs.FileMode{0o600, 0o640, 0o644, 0o755}[p.IntN(4)]
		sub := filepath.Join(dir, []string{"d", "d/sub", "e"}[p.IntN(3)])
		var err error
		switch p.IntN(12) {
		case 0, 1: // in place, under all names
			err = os.WriteFile(from, fmt.Append(nil, "content ", p.clock), 0o644)
		case 2: // as an editor that saves by renaming
			err = errors.Join(os.WriteFile(from+".new", fmt.Append(nil, "content ", p.clock), mode), os.Rename(from+".new", from))
		case 3, 4:
			err = os.Link(from, to)
		case 5, 6, 7:
			err = os.Chmod(from, mode)
		case 8:
			err = os.Rename(from, to)
		case 9:
			err = os.Remove(from)
		case 10:
			err = os.Mkdir(sub, 0o755)
			from = sub
		case 11:
			if p.IntN(4) == 0 {
				err = os.RemoveAll(sub)
			} else {
				err = os.Chtimes(from, time.Time{}, time.Unix(p.clock, 0))
			}
		}
		if err == nil {
			_ = os.Chtimes(from, time.Time{}, time.Unix(p.clock, 0)) // missing after a removal
		}
	}
}

// before makes the same tree in all three directories of the world.
func (w *world) before(t *testing.T, seed uint64) {
	t.Helper()
	for _, f := range []*os.File{w.real, w.base, w.sandbox} {
		newLinkPlay(seed).change(f.Name(), 60)
		must(t, filepath.WalkDir(f.Name(), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chtimes(path, time.Time{}, time.Unix(second, 0))
			}
			return err
		}))
	}
}

// TestLinkedFilesAreUndoneAndRedoneWhole promotes random changes of files with several names, up to three times, and
// undoes and redoes all of it again and again.
func TestLinkedFilesAreUndoneAndRedoneWhole(t *testing.T) {
	const first = 19 // of the first eight, five fail if redo forgets that a file's other names share its metadata
	rounds, promotions := treetest.Budget(t, 8, 200), 0
	for seed := uint64(first); seed < first+uint64(rounds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, treetest.Dir(t), nil, nil)
			w.before(t, seed)
			p := newLinkPlay(seed + 1<<32)
			p.clock += 1000
			states := []string{manifest(t, w)}
			for range 1 + p.IntN(3) {
				p.change(w.sandbox.Name(), 1+p.IntN(12))
				w.taken = time.Now()
				o := options(w.live())
				o.KeepUndo = true
				r, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, o.Base), o)
				if errors.Is(err, errs.ErrConflict) { // a hard link that is not among the changes
					break
				}
				must(t, err)
				if r.ID != "" {
					// Links are compared below: a name that moved while the file's other names are unchanged gets its own file.
					treetest.Compare(t, w.sandbox, w.real, treetest.Options{NoDirTimes: true, NoLinks: true})
					states = append(states, manifest(t, w))
					promotions++
				}
			}
			last := len(states) - 1
			for turn := range 3 {
				for n := last - 1; n >= 0; n-- {
					w.undone(t)
					if l := treetest.Lines(states[n], manifest(t, w)); len(l) > 0 {
						t.Fatalf("turn %d, undone to state %d: %q", turn, n, l)
					}
				}
				for n := 1; n <= last; n++ {
					w.redone(t)
					if l := treetest.Lines(states[n], manifest(t, w)); len(l) > 0 {
						t.Fatalf("turn %d, done again to state %d: %q", turn, n, l)
					}
				}
			}
			list, err := promote.Promotions(w.state())
			must(t, err)
			for _, one := range list {
				must(t, promote.Forget(t.Context(), w.state(), one.ID))
			}
			w.clean(t)
		})
	}
	if promotions < rounds {
		t.Errorf("only %d promotions in %d rounds", promotions, rounds)
	}
}

// linkScenes are changes after which a file with several names (hard links) stays under one name, with other metadata.
func linkScenes() map[string][2]treetest.Script {
	chmod := func(path string) treetest.Step {
		s := do(treetest.Chmod, path, "")
		s.Mode = 0o600
		return s
	}
	return map[string][2]treetest.Script{
		"a name is replaced": {
			{file("a", 1, 10), do(treetest.Link, "a", "b"), file("gone", 2, 10)},
			{chmod("b"), do(treetest.Unlink, "a", ""), file("a", 3, 10), do(treetest.Unlink, "gone", ""), file("new", 4, 10)},
		},
		"a name is deleted": {
			{file("a", 1, 10), do(treetest.Link, "a", "b")},
			{chmod("b"), do(treetest.Unlink, "a", "")},
		},
		"a name is deleted with its directory": {
			{do(treetest.Mkdir, "dir", ""), file("dir/a", 1, 10), do(treetest.Link, "dir/a", "b")},
			{chmod("b"), do(treetest.RemoveRF, "dir", "")},
		},
		"a name is added": {
			{file("a", 1, 10)},
			{do(treetest.Link, "a", "b"), chmod("a")},
		},
		"a name is added with a directory": {
			{file("a", 1, 10)},
			{do(treetest.Mkdir, "dir", ""), do(treetest.Link, "a", "dir/b"), chmod("a")},
		},
		"a file becomes a name": {
			{file("a", 1, 10), file("b", 2, 10)},
			{do(treetest.Unlink, "b", ""), do(treetest.Link, "a", "b"), chmod("a")},
		},
	}
}

func TestUndoAndRedoOfAFileWithSeveralNames(t *testing.T) {
	for name, scene := range linkScenes() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, treetest.Dir(t), scene[0], scene[1])
			old := manifest(t, w)
			w.promoted(t, "s", w.frozen())
			treetest.Compare(t, w.sandbox, w.real, treetest.Options{NoDirTimes: true})
			promoted := manifest(t, w)
			for turn := range 2 {
				w.undone(t)
				if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
					t.Fatalf("turn %d, undone: %q", turn, l)
				}
				w.redone(t)
				if l := treetest.Lines(promoted, manifest(t, w)); len(l) > 0 {
					t.Fatalf("turn %d, done again: %q", turn, l)
				}
			}
		})
	}
}
