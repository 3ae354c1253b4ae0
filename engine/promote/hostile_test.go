package promote_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// soon fails the test if f takes longer than hostile input may cost.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it hangs")
	}
}

// outside creates a directory beside the real tree that no promotion may reach, and returns
// a check that none has.
func (w *world) outside(t *testing.T) (dir string, untouched func()) {
	t.Helper()
	dir = filepath.Join(w.top, "outside")
	must(t, os.MkdirAll(dir+"/sub", 0o755))
	must(t, os.WriteFile(dir+"/x", []byte("not yours"), 0o644))
	before := treetest.Manifest(t, dir, treetest.Options{})
	return dir, func() {
		t.Helper()
		if l := treetest.Lines(before, treetest.Manifest(t, dir, treetest.Options{})); len(l) > 0 {
			t.Errorf("written outside of the target: %q", l)
		}
	}
}

// printable fails the test if an error contains characters that a terminal interprets.
func printable(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.ContainsFunc(err.Error(), func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 || c == '\uFFFD' }) {
		t.Errorf("control characters in %q", err)
	}
}

func TestASymbolicLinkWhereADirectoryWasLeadsNowhere(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{do(treetest.Mkdir, "d", ""), file("d/x", 1, 10), file("d/y", 1, 10)}, nil)
	out, untouched := w.outside(t)
	must(t, os.RemoveAll(w.sandbox.Name()+"/d"))
	must(t, os.Symlink(out, w.sandbox.Name()+"/d"))
	changes := w.changes(t, w.frozen())
	// Only the link replaces the directory, and Apply does not follow it.
	soon(t, func() {
		_, err := promote.Apply(t.Context(), w.target(), w.source(), changes, options(w.frozen()))
		must(t, err)
	})
	untouched()
	if target, err := os.Readlink(w.real.Name() + "/d"); err != nil || target != out {
		t.Errorf("%q, %v", target, err)
	}
	// Changes below a link, which no comparison produces, reach nothing.
	n := &diff.Node{Mode: 0o644, MTime: time.Now()}
	for _, c := range []diff.Change{
		{Path: "d/evil", Kind: diff.Added, New: n},
		{Path: "d/x", Kind: diff.Modified, What: diff.Content, Old: n, New: n},
		{Path: "d/x", Kind: diff.Deleted, Old: n},
		{Path: "d/x", Kind: diff.Modified, What: diff.Mode, Old: n, New: n},
		{Path: "d/sub/evil", Kind: diff.Added, New: n},
		{Path: "../outside/evil", Kind: diff.Added, New: n},
		{Path: "d/../../outside/x", Kind: diff.Deleted, Old: n},
		{Path: out + "/x", Kind: diff.Deleted, Old: n},
	} {
		r, err := promote.Apply(t.Context(), w.target(), w.source(), []diff.Change{c}, options(w.frozen()))
		if err == nil && r.Applied > 0 {
			t.Errorf("%s %v was applied", c.Path, c.Kind)
		}
		printable(t, err)
		untouched()
	}
	w.clean(t)
}

func TestASparseFileStaysSparse(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, nil)
	const size = 4 << 30
	f, err := os.Create(w.sandbox.Name() + "/big")
	must(t, err)
	must(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("in the middle"), size/2)
	must(t, err)
	f.Close()
	soon(t, func() {
		_, err := w.apply(t, w.frozen())
		must(t, err)
	})
	var st unix.Stat_t
	must(t, unix.Lstat(w.real.Name()+"/big", &st))
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes, of which %d take room", st.Size, st.Blocks*512)
	}
	w.clean(t)
}

func TestHostileNamesArePromotedAndNeverPrinted(t *testing.T) {
	names := []string{"\x1b[2J\x1b]0;mine\a", "two\nlines", "\xff\xfe", "cr\rlf", "\u202egnp.exe", "-rf", "a b", "\u009b31m"}
	var after treetest.Script
	for i, n := range names {
		after = append(after, do(treetest.Mkdir, "d"+n, ""), file("d"+n+"/"+n, uint64(i), 10), do(treetest.Symlink, "l"+n, n))
	}
	w := newWorld(t, treetest.Dir(t), nil, after)
	changes := w.changes(t, w.frozen())
	for i, c := range changes { // each drifts once
		path := filepath.Join(w.real.Name(), c.Path)
		must(t, os.MkdirAll(path, 0o700))
		_, err := promote.Apply(t.Context(), w.target(), w.source(), changes[i:], options(w.frozen()))
		if err == nil {
			t.Errorf("%q in the way is not noticed", c.Path)
		}
		printable(t, err)
		must(t, os.RemoveAll(filepath.Join(w.real.Name(), strings.SplitN(c.Path, "/", 2)[0])))
		stamp := time.Unix(second, 0)
		must(t, os.Chtimes(w.real.Name(), stamp, stamp))
	}
	// The content is gone, so that opening it fails.
	from := w.source()
	from.From = map[string]string{changes[1].Path: "gone\x1b[2J"}
	_, err := promote.Apply(t.Context(), w.target(), from, changes, options(w.frozen()))
	if err == nil {
		t.Error("content that is not there was carried")
	}
	printable(t, err)
	for i := range changes { // needs approval by its path
		h := approval.Allow{}.Check("/", []diff.Change{{Path: ".git/" + changes[i].Path, Kind: diff.Added, New: changes[i].New}}, nil)
		printable(t, errors.New(h.String()))
	}
	_, err = promote.Apply(t.Context(), w.target(), w.source(), changes, options(w.frozen()))
	must(t, err)
	w.arrived(t)
	_, err = promote.Undo(t.Context(), w.state(), "\x1b[2J")
	printable(t, err)
}

func TestAHardLinkToAFileOutsideIsPromotedAsAFileOfItsOwn(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, nil)
	out, _ := w.outside(t)
	must(t, os.Link(out+"/x", w.sandbox.Name()+"/link"))
	_, untouched := w.outside(t) // its link count has changed now
	_, err := w.apply(t, w.frozen())
	must(t, err)
	must(t, os.WriteFile(w.real.Name()+"/link", []byte("written through"), 0o644))
	untouched()
	w.clean(t)
}

func TestAPipeNeverHangs(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("becomes", 1, 10)}, treetest.Script{
		do(treetest.Fifo, "pipe", ""), do(treetest.Unlink, "becomes", ""), do(treetest.Fifo, "becomes", ""), file("later", 2, 10), file("there", 3, 10),
	})
	changes := w.changes(t, w.frozen())
	pipe := func(dir, name string) {
		must(t, errors.Join(os.RemoveAll(filepath.Join(dir, name)), unix.Mkfifo(filepath.Join(dir, name), 0o644)))
	}
	pipe(w.sandbox.Name(), "later") // after the comparison
	pipe(w.real.Name(), "there")
	for _, paths := range [][]string{{"later"}, {"there"}} {
		chosen := selected(changes, paths...)
		soon(t, func() {
			if _, err := promote.Apply(t.Context(), w.target(), w.source(), chosen, options(w.frozen())); !errors.Is(err, errs.ErrConflict) && !errors.Is(err, errs.ErrDrifted) {
				t.Errorf("%v: %v", paths, err)
			}
		})
	}
	chosen := selected(changes, "pipe", "becomes")
	soon(t, func() {
		_, err := promote.Apply(t.Context(), w.target(), w.source(), chosen, options(w.frozen()))
		must(t, err)
	})
	for _, p := range []string{"pipe", "becomes"} {
		if st, err := os.Lstat(filepath.Join(w.real.Name(), p)); err != nil || st.Mode().Type() != fs.ModeNamedPipe {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	w.clean(t)
}

// TestADirectoryThatIsSwappedForALinkMeanwhileLeadsNowhere promotes and undoes for seconds
// while another goroutine exchanges a directory of the target with a link that leads out of
// it, as fast as the kernel can.
func TestADirectoryThatIsSwappedForALinkMeanwhileLeadsNowhere(t *testing.T) {
	treetest.OncePerRun(t)
	before := treetest.Script{do(treetest.Mkdir, "d", ""), do(treetest.Mkdir, "d/sub", ""), file("d/x", 1, 10), file("d/sub/x", 1, 10), file("d/gone", 1, 10)}
	after := treetest.Script{
		do(treetest.Unlink, "d/x", ""), file("d/x", 2, 10), do(treetest.Unlink, "d/sub/x", ""), file("d/sub/x", 2, 10),
		file("d/new", 3, 10), do(treetest.Unlink, "d/gone", ""), do(treetest.Mkdir, "d/sub/more", ""), file("d/sub/more/x", 4, 10),
	}
	w := newWorld(t, treetest.Dir(t), before, after)
	out, untouched := w.outside(t)
	must(t, os.Symlink(out, w.top+"/link"))
	changes, base := w.changes(t, w.frozen()), w.frozen()
	stop := make(chan struct{})
	var racer sync.WaitGroup
	racer.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n%2 == 1 { // the directory is back in its place at the end
					_ = unix.Renameat2(unix.AT_FDCWD, w.top+"/link", unix.AT_FDCWD, w.real.Name()+"/d", unix.RENAME_EXCHANGE)
				}
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, w.top+"/link", unix.AT_FDCWD, w.real.Name()+"/d", unix.RENAME_EXCHANGE); err != nil {
					n--
				}
				if n%7 < 5 {
					time.Sleep(time.Duration(n%5) * 200 * time.Microsecond)
				}
			}
		}
	})
	tries, done := 0, 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); tries++ {
		o := options(base)
		o.KeepUndo = true
		r, err := promote.Apply(t.Context(), w.target(), w.source(), changes, o)
		printable(t, err)
		if err == nil && r.ID != "" {
			done++
			for range 200 {
				if _, err := promote.Undo(t.Context(), w.state(), r.ID); err == nil {
					break
				}
			}
		}
		if err != nil && !errors.Is(err, errs.ErrDrifted) && !errors.Is(err, errs.ErrNotFound) && !errors.Is(err, errs.ErrConflict) {
			t.Errorf("%v", err)
		}
		if _, err := promote.Recover(t.Context(), w.state()); err != nil {
			printable(t, err)
		}
	}
	close(stop)
	racer.Wait()
	untouched()
	t.Logf("%d promotions against the racer, %d of them carried out", tries, done)
	if tries < 10 {
		t.Error("too few to say anything")
	}
}
