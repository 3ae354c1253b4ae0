package promote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestAnyChangeOfARealFileIsDriftAndNothingIsTouched(t *testing.T) {
	write := func(data string) func(string) error {
		return func(p string) error { return os.WriteFile(p, []byte(data), 0o644) }
	}
	// sneaky writes the same number of bytes and restores the time.
	sneaky := func(p string) error {
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		data := strings.Repeat("!", int(st.Size()))
		return errors.Join(os.WriteFile(p, []byte(data), 0o644), os.Chtimes(p, st.ModTime(), st.ModTime()))
	}
	for _, c := range []struct {
		name, path string
		edit       func(string) error
		drift      string // the path named, if another
	}{
		{"content", "mod", write("mine"), ""},
		{"content with its time put back", "mod", sneaky, ""},
		{"deleted", "mod", os.Remove, ""},
		{"mode", "mode", func(p string) error { return os.Chmod(p, 0o640) }, ""},
		{"owner", "mod", func(p string) error { return os.Chown(p, 7, 7) }, ""},
		{"attribute", "attr", func(p string) error { return unix.Setxattr(p, "user.other", []byte("x"), 0) }, ""},
		{"replaced", "mod", func(p string) error { return errors.Join(write("x")(p+".new"), os.Rename(p+".new", p)) }, ""},
		{"became a directory", "mod", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, ""},
		{"became a link", "gone", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("keep", p)) }, ""},
		{"target", "sym", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("elsewhere", p)) }, ""},
		{"made", "new", write("mine"), ""},
		{"made beneath", "dir/added", write("mine"), ""},
		{"new in a directory to go", "olddir/sub/mine", write("mine"), ""},
		{"changed in a directory to go", "olddir/a", write("mine"), ""},
		{"its directory is gone", "dir", os.RemoveAll, "dir/added"},
		{"its directory is a link now", "dir", func(p string) error { return errors.Join(os.Rename(p, p+"2"), os.Symlink("dir2", p)) }, "dir/added"},
	} {
		for kind, base := range map[string]func(*world) promote.Base{"frozen": (*world).frozen, "live": (*world).live} {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				if c.name == "owner" {
					treetest.NeedRoot(t)
				}
				before, after := scene()
				w := newWorld(t, treetest.Dir(t), before, after)
				changes := w.changes(t, base(w))
				must(t, c.edit(filepath.Join(w.real.Name(), c.path)))
				now := manifest(t, w)
				want := c.path
				if c.drift != "" {
					want = c.drift
				}
				_, err := promote.Apply(t.Context(), w.target(), w.source(), changes, options(base(w)))
				if !errors.Is(err, errs.ErrDrifted) || !strings.Contains(err.Error(), want+":") {
					t.Errorf("got %v, want drift of %s", err, want)
				}
				if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
					t.Errorf("touched: %q", l)
				}
				w.clean(t)
			})
		}
	}
}

func TestDriftNamesTwentyPathsAndCountsTheRest(t *testing.T) {
	var before, after treetest.Script
	for i := range 30 {
		before = append(before, file(fmt.Sprintf("f%02d", i), 1, 10))
		after = append(after, do(treetest.Unlink, fmt.Sprintf("f%02d", i), ""))
	}
	before = append(before, file("esc\x1b[31m", 1, 1))
	after = append(after, do(treetest.Unlink, "esc\x1b[31m", ""))
	w := newWorld(t, treetest.Dir(t), before, after)
	for _, s := range before {
		must(t, os.WriteFile(filepath.Join(w.real.Name(), s.Path), []byte("x"), 0o644))
	}
	_, err := w.apply(t, w.frozen())
	if !errors.Is(err, errs.ErrDrifted) {
		t.Fatal(err)
	}
	if s := err.Error(); !strings.HasSuffix(s, "and 11 more") || strings.Contains(s, "\x1b") || !strings.Contains(s, "f18") || strings.Contains(s, "f19:") {
		t.Errorf("%q", s)
	}
	drifts, err := promote.Check(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), w.frozen())
	if err != nil || len(drifts) != 31 {
		t.Errorf("check: %d, %v", len(drifts), err)
	}
}

func TestTheSameChangeOnTheRealTreeIsNoDrift(t *testing.T) {
	before, after := scene()
	w := newWorld(t, treetest.Dir(t), before, after)
	must(t, after.Play(w.real))
	r, err := w.apply(t, w.frozen())
	if err != nil || r.Applied > 2 || len(r.Already) < 20 {
		t.Errorf("%+v, %v", r, err)
	}
}

// during calls f in the middle of an Apply, right before the named step.
func during(ctx context.Context, step string, f func()) context.Context {
	done := false
	return treetest.WithFaults(ctx, func(s string) error {
		if s == step && !done {
			done = true
			f()
		}
		return nil
	})
}

func TestAChangeAtTheWorstInstantIsNeitherLostNorOverwritten(t *testing.T) {
	treetest.OncePerRun(t)
	const mine = "the user's own words"
	save := func(p string) error {
		return errors.Join(os.WriteFile(p+".tmp", []byte(mine), 0o644), os.Rename(p+".tmp", p))
	}
	write := func(p string) error { return os.WriteFile(p, []byte(mine), 0o644) }
	for i, step := range []string{"build the new versions", "write the journal", "move", "swap", "drop", "put"} {
		for j, path := range []string{"zzz-mod", "zzz-gone", "zzz-old/x", "zzz-new"} {
			for how, edit := range map[string]func(string) error{"saved": save, "written": write} {
				if !long(t) && (how == "saved") != ((i+j)%2 == 0) { // make test edits in one of the two ways
					continue
				}
				t.Run(step+"/"+how+"/"+strings.ReplaceAll(path, "/", "-"), func(t *testing.T) {
					t.Parallel()
					before, after := scene()
					before = append(before, file("zzz-mod", 1, 10), file("zzz-gone", 2, 10), do(treetest.Mkdir, "zzz-old", ""), file("zzz-old/x", 3, 10))
					after = append(after, do(treetest.Unlink, "zzz-mod", ""), file("zzz-mod", 4, 10), do(treetest.Unlink, "zzz-gone", ""),
						do(treetest.RemoveRF, "zzz-old", ""), file("zzz-new", 5, 10))
					w := newWorld(t, treetest.Dir(t), before, after)
					real := filepath.Join(w.real.Name(), path)
					ctx := during(t.Context(), step, func() { must(t, edit(real)) })
					old := manifest(t, w)
					_, err := promote.Apply(ctx, w.target(), w.source(), w.changes(t, w.frozen()), options(w.frozen()))
					if !errors.Is(err, errs.ErrDrifted) {
						t.Errorf("got %v", err)
					}
					if b, _ := os.ReadFile(real); string(b) != mine {
						t.Errorf("the real file holds %q", b)
					}
					for _, l := range treetest.Lines(old, manifest(t, w)) {
						if !strings.Contains(l, path) && !strings.Contains(l, `"zzz-old"`) && !strings.Contains(l, `".`+"\"") {
							t.Errorf("not taken back: %s", l)
						}
					}
					w.clean(t)
				})
			}
		}
	}
}

func TestAWriterThatHadTheFileOpenIsNoticed(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10)})
	f, err := os.OpenFile(w.real.Name()+"/a", os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	ctx := during(t.Context(), "look again", func() { _, err = f.WriteString("mine"); must(t, err) })
	if _, err := promote.Apply(ctx, w.target(), w.source(), w.changes(t, w.frozen()), options(w.frozen())); !errors.Is(err, errs.ErrDrifted) {
		t.Errorf("got %v", err)
	}
	if b, _ := os.ReadFile(w.real.Name() + "/a"); !strings.HasPrefix(string(b), "mine") {
		t.Errorf("the file holds %q", b)
	}
}

// A program opens the new version of a file before a promotion is reverted, and writes to it when the revert has moved
// it into its stage.
func TestAWriteToANewVersionThatIsRevertedStays(t *testing.T) {
	for _, path := range []string{"a", "new"} {
		w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10), file("b", 3, 10)},
			treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10), do(treetest.Unlink, "b", ""), file("new", 4, 10)})
		var f *os.File
		ctx := treetest.WithFaults(t.Context(), func(step string) (err error) {
			switch step {
			case "look again":
				f, err = os.OpenFile(filepath.Join(w.real.Name(), path), os.O_WRONLY|os.O_APPEND, 0)
				return errors.Join(err, errRehearsed)
			case "look for late writes":
				_, err = f.WriteString("mine")
				return errors.Join(err, f.Close())
			}
			return nil
		})
		_, err := promote.Apply(ctx, w.target(), w.source(), w.changes(t, w.frozen()), options(w.frozen()))
		if !errors.Is(err, errRehearsed) || !strings.Contains(err.Error(), path+": changed by another program meanwhile") {
			t.Errorf("%s: got %v", path, err)
		}
		if b, err := os.ReadFile(filepath.Join(w.real.Name(), path)); !strings.HasSuffix(string(b), "mine") {
			t.Errorf("%s holds %q, %v", path, b, err)
		}
		if b, err := os.ReadFile(filepath.Join(w.real.Name(), "b")); len(b) != 10 {
			t.Errorf("b was not restored: %q, %v", b, err)
		}
	}
}

func TestAnAttributeSetOnAFileThatWasDisplacedIsNoticed(t *testing.T) {
	for _, step := range []string{"sync the target", "look again"} {
		w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10)})
		f := treetest.Open(t, w.real.Name()+"/a")
		ctx := during(t.Context(), step, func() { must(t, unix.Fsetxattr(int(f.Fd()), "user.snapfs", []byte("mine"), 0)) })
		if _, err := promote.Apply(ctx, w.target(), w.source(), w.changes(t, w.frozen()), options(w.frozen())); !errors.Is(err, errs.ErrDrifted) {
			t.Errorf("%s: got %v", step, err)
		}
		value := make([]byte, 8)
		n, err := unix.Getxattr(w.real.Name()+"/a", "user.snapfs", value)
		if err != nil || string(value[:n]) != "mine" {
			t.Errorf("%s: the file has %q, %v", step, value[:max(n, 0)], err)
		}
		w.clean(t)
	}
}

func TestSwappingAParentForALinkNeverLeadsOutside(t *testing.T) {
	treetest.OncePerRun(t)
	var before, after treetest.Script
	before = append(before, do(treetest.Mkdir, "d", ""))
	for i := range 20 {
		before = append(before, file(fmt.Sprintf("d/f%02d", i), 1, 10))
		after = append(after, do(treetest.Unlink, fmt.Sprintf("d/f%02d", i), ""), file(fmt.Sprintf("d/n%02d", i), 2, 10))
	}
	w := newWorld(t, treetest.Dir(t), before, after)
	outside := filepath.Join(w.top, "outside")
	must(t, os.Mkdir(outside, 0o755))
	out := treetest.Open(t, outside)
	for _, s := range before[1:] { // the same names, which a mistake would delete
		s.Path = strings.TrimPrefix(s.Path, "d/")
		must(t, treetest.Script{s}.Play(out))
	}
	untouched := treetest.Manifest(t, outside, treetest.Options{})
	d := filepath.Join(w.real.Name(), "d")
	must(t, os.Symlink(outside, d+".link"))
	changes := w.changes(t, w.frozen())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // exchanges the directory and the link without a pause
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, d, unix.AT_FDCWD, d+".link", unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	refused := 0
	for begin := time.Now(); time.Since(begin) < time.Second; {
		_, err := promote.Apply(t.Context(), w.target(), w.source(), changes, options(w.frozen()))
		if err != nil {
			refused++
		}
		if l := treetest.Lines(untouched, treetest.Manifest(t, outside, treetest.Options{})); len(l) > 0 {
			t.Fatalf("outside: %q", l)
		}
	}
	close(stop)
	<-stopped
	if refused == 0 {
		t.Error("no race was ever won: this tests nothing")
	}
}
