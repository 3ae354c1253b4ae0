package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// onLiveBases runs a test on each backend that reads what a sandbox has renamed from the real tree.
func onLiveBases(t *testing.T, test func(t *testing.T, b *bench, backend string)) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for _, backend := range []string{"overlay", "fusecow-overlay", "fusecow"} {
		t.Run(backend, func(t *testing.T) { test(t, newBench(t), backend) })
	}
}

// fill makes a tree in which much is to be renamed.
func (b *bench) fill() {
	b.t.Helper()
	for _, dir := range []string{"d", "d/sub", "d/empty", "one", "two", "q"} {
		b.mkdir(dir)
	}
	for _, f := range []string{"file", "other", "d/a", "d/b", "d/sub/c", "d/x", "one/a", "two/b", "two/a", "q/q"} {
		b.write(f, "content of "+f+"\n")
	}
	err := errors.Join(os.Link(b.workspace+"/d/x", b.workspace+"/d/sub/y"), os.Symlink("a", b.workspace+"/d/link"), os.Chmod(b.workspace+"/d/b", 0o640))
	if err != nil {
		b.t.Fatal(err)
	}
	tick()
}

// renames are files and directories with new names, changed within afterwards; names that others have now; and
// directories in one another.
const renames = `mv file moved; mv other file; mv q q1; mv d dd; echo more >> dd/a; rm dd/b; mkdir d; echo new > d/new
	mv one t; mv two one; mv t two; mv q1 dd/q2; mkdir n; mv dd n/dd`

// has is all that there is beneath a directory: types, modes, and content.
const has = `find . -printf '%P %y %m %l %n\n' | sort; find . -type f | sort | xargs cat`

func (b *bench) renamed(name, backend string) {
	b.t.Helper()
	req := b.request()
	req.Name, req.Backend = name, backend
	if _, err := b.New(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	b.removeLater(name)
	b.in(name, renames)
	if err := b.Supervise.Stop(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
}

// bare is what a listing says of a directory that links of directories do not: how many there are is the filesystem's affair.
func bare(list string) string {
	var kept []string
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == "d" || strings.HasPrefix(line, " d ") {
			line = strings.Join(f[:len(f)-1], " ") + "\n"
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "")
}

func TestWhatWasRenamedIsReadAfterItWasCarriedToTheRealTree(t *testing.T) {
	carry := map[string]func(b *bench) error{
		"apply": func(b *bench) error {
			_, err := b.Reconcile.Promote(b.t.Context(), "c", strictly())
			return err
		},
		"promote": func(b *bench) error {
			_, err := b.Reconcile.Promote(b.t.Context(), "c", reconcile.PromoteOptions{})
			return err
		},
	}
	onLiveBases(t, func(t *testing.T, b *bench, backend string) {
		if os.Geteuid() == 0 && !treetest.Long(t) {
			delete(carry, "apply") // the same but for what it refuses
		}
		for verb, do := range carry {
			t.Run(verb, func(t *testing.T) {
				b := newBench(t)
				b.fill()
				b.renamed("c", backend)
				before := b.in("c", has)
				if err := do(b); err != nil {
					t.Fatal(err)
				}
				if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
					t.Fatal(err)
				}
				after := b.in("c", has)
				if real := inReal(t, b); bare(after) != bare(before) || bare(after) != bare(real) {
					t.Errorf("in the sandbox there is\n%s\nbefore there was\n%s\nand the real tree has\n%s", after, before, real)
				}
				b.expect("c", "", "")
				b.carriesOn(t)
			})
		}
	})
}

func inReal(t *testing.T, b *bench) string {
	t.Helper()
	out, err := run.Output(t.Context(), "/bin/sh", "-c", "cd "+b.workspace+" && "+has)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// carriesOn: what was carried can be changed and renamed once more, beside what the user makes of it.
func (b *bench) carriesOn(t *testing.T) {
	t.Helper()
	b.in("c", "echo on >> n/dd/sub/c; mv moved again; mv n/dd/q2 q3")
	if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	b.changed("c", "", "") // what its keeper keeps, and is not waited for
	tick()
	b.write("n/dd/theirs", "theirs\n")
	b.mkdir("q")
	b.write("q/theirs", "theirs\n")
	if got := b.changed("c", "", ""); !slices.Contains(got, "A q3/q") {
		t.Errorf("changed: %q", got)
	}
	if b.in("c", "ls q3") != "q\n" {
		t.Error("what the user made where a renamed directory was is shown in it")
	}
	if _, err := b.Reconcile.Promote(t.Context(), "c", reconcile.PromoteOptions{}); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"n/dd/sub/c": "content of d/sub/c\non\n", "again": "content of file\n", "q3/q": "content of q/q\n", "n/dd/theirs": "theirs\n", "q/theirs": "theirs\n",
	} {
		if got := b.read(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestNothingIsRenamedUnderWhatRuns: what is in use cannot be brought up, and is not lost.
func TestNothingIsRenamedUnderWhatRuns(t *testing.T) {
	onLiveBases(t, func(t *testing.T, b *bench, backend string) {
		b.fill()
		b.renamed("c", backend)
		b.in("c", "echo plain > plain")
		before := inReal(t, b)
		p, err := b.Supervise.Exec(t.Context(), "c", isolate.Command{Args: []string{"/bin/sleep", "1000"}, Dir: b.workspace})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Reconcile.Promote(t.Context(), "c", strictly())
		var e *errs.Error
		if !errors.Is(err, errs.ErrBusy) || !errors.As(err, &e) || !slices.Equal(e.Hints, []string{"snapfs stop c"}) {
			t.Errorf("applied while something runs: %v", err)
		}
		if inReal(t, b) != before {
			t.Error("the real tree has changed")
		}
		if _, err = b.Reconcile.Promote(t.Context(), "c", strictly(b.workspace+"/plain")); err != nil {
			t.Error("what was not renamed is not applied:", err)
		}
		if err := errors.Join(b.Supervise.Stop(t.Context(), "c"), p.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWhatThereIsNoRoomToBringUpIsNotCarried: nothing is changed before.
func TestWhatThereIsNoRoomToBringUpIsNotCarried(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	b := newBench(t)
	b.mkdir("d")
	if err := os.WriteFile(b.workspace+"/d/large", bytes.Repeat([]byte("base"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	tick()
	req := b.request()
	req.Name, req.Backend = "c", "fusecow"
	req.Policy.Limits.Disk = 1 << 20
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.removeLater("c")
	b.in("c", "mv d dd")
	if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	_, err := b.Reconcile.Promote(t.Context(), "c", strictly())
	var e *errs.Error
	if !errors.Is(err, errs.ErrNoSpace) || !errors.As(err, &e) || !slices.Equal(e.Hints, []string{"snapfs limits c --set disk=none"}) {
		t.Errorf("applied without room: %v", err)
	}
	if _, err := os.Lstat(b.workspace + "/d/large"); err != nil {
		t.Error("the real tree was changed:", err)
	}
	if got := b.in("c", "cat dd/large | wc -c"); got != fmt.Sprintln(4<<20) {
		t.Errorf("the sandbox has %s bytes of it", got)
	}
}

// TestBringingUpIsSafeToKill: at each step the real tree is whole, the sandbox has all that it had, and the
// next command goes on.
func TestBringingUpIsSafeToKill(t *testing.T) {
	onLiveBases(t, func(t *testing.T, b *bench, backend string) {
		b.fill()
		if err := os.Remove(b.workspace + "/d/sub/y"); err != nil { // what is killed between two names makes them two files
			t.Fatal(err)
		}
		tick() // d/x has one name less
		b.renamed("c", backend)
		before := bare(b.in("c", has))
		stride := treetest.Budget(t, 9, 1)
		for n := 1 + os.Getpid()%stride; ; n += stride { // each kill leaves what the next has to go on from
			o := b.child("apply", n, "kill")
			b.Engine, _ = b.reopen()
			if !o.killed && o.err != nil {
				t.Fatalf("step %d: %v\n%s", n, o.err, o.out)
			}
			if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
			if got := bare(b.in("c", has)); got != before {
				t.Fatalf("killed at step %d the sandbox has\n%s\nwant\n%s", n, got, before)
			}
			if _, err := os.Lstat(filepath.Join(b.workspace, "d/a")); err != nil { // from here on promote's own tests look
				break
			}
		}
		if got := bare(inReal(t, b)); got != before {
			t.Errorf("the real tree has\n%s\nwant\n%s", got, before)
		}
	})
}

// TestWhatIsKeptOnceItIsAppliedHasWhatItRenamed: what it changed elsewhere can be applied then.
func TestWhatIsKeptOnceItIsAppliedHasWhatItRenamed(t *testing.T) {
	onLiveBases(t, func(t *testing.T, b *bench, backend string) {
		elsewhere := filepath.Join(filepath.Dir(b.workspace), "elsewhere")
		b.write("../elsewhere", "base\n")
		b.fill()
		req := b.request()
		req.Backend = backend
		s, err := b.Run(t.Context(), req, b.command(renames+"; echo changed > "+elsewhere))
		if err == nil {
			_, err = s.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		shown, err := s.Engine.Compare.Changes(t.Context(), s.Record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Promote(t.Context(), strictly(), true); err != nil {
			t.Fatal(err)
		}
		shown.Close()
		if err := s.Keep(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		b.removeLater("c")
		if inside, real := bare(b.in("c", has)), bare(inReal(t, b)); inside != real {
			t.Errorf("in the sandbox there is\n%s\nand the real tree has\n%s", inside, real)
		}
		if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "c", strictly(elsewhere)); err != nil {
			t.Error(err)
		}
	})
}
