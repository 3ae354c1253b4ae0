package engine_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// A witness runs in the sandbox "s", with f open from the beginning, and tells what it finds.
type witness struct {
	b  *bench
	in io.Writer
	*bufio.Reader
}

func (b *bench) witness() *witness {
	b.t.Helper()
	in, typed, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	said, out, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	c := b.command("exec 3<f; cd dir; while read x; do echo $(cat ../f) $(head -c 9 /proc/self/fd/3) $(cd ..; echo new*) $(ls); done")
	c.Stdin, c.Stdout = in, out
	guest, err := b.Supervise.Exec(b.t.Context(), "s", c)
	in.Close()
	out.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { typed.Close(); said.Close(); guest.Close() })
	return &witness{b, typed, bufio.NewReader(said)}
}

// sees is what the witness finds now.
func (w *witness) sees() string {
	w.b.t.Helper()
	if _, err := io.WriteString(w.in, "x\n"); err != nil {
		w.b.t.Fatal(err)
	}
	line, err := w.ReadString('\n')
	if err != nil {
		w.b.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// What a witness sees at the base and in the states m1 and m2 of setLiveStage.
const atBase, atFirst, atSecond = "0 0 new* kept", "1 1 new1 kept one", "2 2 new2"

// setLiveStage makes "s", which is in its state m2. In each the file other says which it is.
func (b *bench) setLiveStage(other string) *witness {
	b.t.Helper()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.write("f", "0")
	must(os.Mkdir(b.workspace+"/dir", 0o755))
	b.write("dir/kept", "")
	req := b.request()
	req.Name, req.Backend = "s", "fusecow"
	_, err := b.New(b.t.Context(), req)
	must(err)
	w := b.witness()
	b.in("s", "printf 1 > f; echo > new1; echo > dir/one; echo m1 > "+other)
	_, err = b.Snapshot(b.t.Context(), "s", "m1")
	must(err)
	b.in("s", "printf 2 > f; mv new1 new2; rm dir/one dir/kept; echo m2 > "+other)
	_, err = b.Snapshot(b.t.Context(), "s", "m2")
	must(err)
	return w
}

func (b *bench) takesBack(w *witness, mark, want string) {
	b.t.Helper()
	if err := b.RollbackLive(b.t.Context(), "s", mark); err != nil {
		b.t.Fatal(err)
	}
	if got := w.sees(); got != want {
		b.t.Errorf("back at %q, what runs sees %q, want %q", mark, got, want)
	}
}

func onFuse(t *testing.T, test func(t *testing.T, b *bench)) {
	treetest.NeedDevice(t, "/dev/fuse")
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		test(t, newBench(t))
	})
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
			return
		}
		test(t, newBench(t))
	})
}

// TestASandboxIsTakenBackUnderWhatRunsInIt: to its states and its base, back and forth; what runs
// goes on there.
func TestASandboxIsTakenBackUnderWhatRunsInIt(t *testing.T) {
	onFuse(t, func(t *testing.T, b *bench) {
		w := b.setLiveStage("other")
		keeper := b.keeperOf("s")
		if got := w.sees(); got != atSecond {
			t.Fatalf("what runs sees %q", got)
		}
		err := b.Rollback(t.Context(), "s", "m1")
		if hints := errs.HintsOf(err); !errors.Is(err, errs.ErrBusy) || !slices.Contains(hints, "snapfs rollback s m1 --live") {
			t.Errorf("%v, hints %q", err, hints)
		}
		b.in("s", "printf unnamed > f")
		b.takesBack(w, "m1", atFirst)
		b.takesBack(w, "", atBase)
		b.takesBack(w, "m2", atSecond)
		b.takesBack(w, "m1", atFirst)
		if info, err := b.Show(t.Context(), "s"); err != nil || info.At != "m1" || b.keeperOf("s") != keeper {
			t.Errorf("it is at %q, %v", info.At, err)
		}
		if got := b.changed("s", "", ""); !slices.Equal(got, []string{"A dir/one", "M f", "A new1", "A other"}) {
			t.Errorf("changed since the base: %q", got)
		}
		b.in("s", "printf 3 > f")
		if got := w.sees(); got != "3 3 new1 kept one" {
			t.Errorf("after a change there, what runs sees %q", got)
		}
		if _, err := b.Snapshot(t.Context(), "s", "m3"); err != nil {
			t.Fatal(err)
		}
		b.takesBack(w, "m2", atSecond)
		b.takesBack(w, "m3", "3 3 new1 kept one")
		if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if err := b.RollbackLive(t.Context(), "s", "m2"); err != nil || b.in("s", "cat f") != "2" {
			t.Errorf("with nothing in it: %v", err)
		}
		b.sound("taken back")
	})
}

// TestATakingBackThatFailsOrIsKilledIsWholeOrNothing at each of its steps, of one tree and of several.
func TestATakingBackThatFailsOrIsKilledIsWholeOrNothing(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for _, mode := range []string{"fail", "kill"} {
		t.Run("one/"+mode, func(t *testing.T) {
			b := benchIn(t, treetest.Ext4(t, 64<<20), treetest.Dir(t))
			b.takeBackAtEachStep(t, mode, b.workspace+"/other")
		})
		t.Run("several/"+mode, func(t *testing.T) {
			t.Setenv(onlyEnv, "fusecow")
			b := benchIn(t, treetest.Ext4(t, 64<<20), treetest.Dir(t))
			b.takeBackAtEachStep(t, mode, filepath.Join(filepath.Dir(b.state), "other")) // in the tree of "/"
		})
	}
}

func (b *bench) takeBackAtEachStep(t *testing.T, mode, other string) {
	t.Helper()
	w := b.setLiveStage(other)
	whole := map[string]string{"m1": atFirst + " m1", "m2": atSecond + " m2"}
	stride := sampled(t, 1)
	for n := 1; ; n += stride {
		when := fmt.Sprintf("%s at step %d", mode, n)
		o := b.child("rollback live", n, mode)
		b.Engine, _ = b.reopen()
		info, err := b.Show(t.Context(), "s")
		if err != nil || info.LiveRollback != nil {
			t.Fatalf("%s: %+v, %v", when, info.LiveRollback, err)
		}
		if got := w.sees() + " " + strings.TrimSpace(b.in("s", "cat "+other)); got != whole[info.At] {
			t.Fatalf("%s: it is said to be at %s, and what runs sees %q", when, info.At, got)
		}
		if !o.killed && o.steps < n {
			if o.err != nil || info.At != "m1" {
				t.Fatalf("%s: with nothing in its way: %v", when, o.err)
			}
			t.Logf("%s: %d steps, %d trees", mode, o.steps, len(info.Trees))
			break
		}
		if info.At == "m1" {
			b.takesBack(w, "m2", atSecond)
		}
	}
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	b.sound(mode)
}

// TestWhatIsHalfTakenBackIsNotApplied: a command that has been there for long finds it so.
func TestWhatIsHalfTakenBackIsNotApplied(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	t.Setenv(onlyEnv, "fusecow")
	b := benchIn(t, treetest.Ext4(t, 64<<20), treetest.Dir(t))
	w := b.setLiveStage(filepath.Join(filepath.Dir(b.state), "other"))
	half := func() bool {
		info, err := b.Show(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		return info.LiveRollback != nil
	}
	for n := 1; !half() || w.sees() == atSecond; n++ {
		b.reopen()
		if o := b.child("rollback live", n, "kill"); !o.killed {
			t.Fatal("it was never half taken back")
		}
	}
	_, err := b.Reconcile.Promote(t.Context(), "s", dry(strictly()))
	if half() {
		t.Error("it is half taken back still; applying it:", err)
	}
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	b.sound("taken back")
}

// TestATreeThatIsMountedOverIsTakenBack: what it was is there still for who is in the sandbox.
func TestATreeThatIsMountedOverIsTakenBack(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	disk := treetest.Ext4(t, 64<<20)
	b := benchIn(t, disk, treetest.Dir(t))
	w := b.setLiveStage(b.workspace + "/other")
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	over := true
	uncover := func() {
		if over {
			over = false
			if err := unix.Unmount(disk, 0); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(uncover)
	b.takesBack(w, "", atBase)
	b.takesBack(w, "m2", atSecond)
	uncover()
	b.takesBack(w, "m1", atFirst)
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	b.sound("taken back")
}

// TestATreeThatCannotBeTakenBackUnderWhatRunsMustHaveKeptStill: else it is refused, and nothing changed.
func TestATreeThatCannotBeTakenBackUnderWhatRunsMustHaveKeptStill(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	b := benchIn(t, treetest.Ext4(t, 64<<20), treetest.Dir(t))
	other := filepath.Join(filepath.Dir(b.state), "other")
	w := b.setLiveStage(b.workspace + "/other")
	b.takesBack(w, "m1", atFirst)
	b.in("s", "echo > "+other)
	err := b.RollbackLive(t.Context(), "s", "m2")
	if !errors.Is(err, errs.ErrNotSupported) || !slices.Equal(errs.HintsOf(err), []string{"snapfs rollback s m2 --stop"}) {
		t.Errorf("%v, hints %q", err, errs.HintsOf(err))
	}
	if got := w.sees(); got != atFirst {
		t.Errorf("after a refusal, what runs sees %q", got)
	}
	b.in("s", "rm "+other)
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	b.write("f", "theirs")
	if _, err := b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{Mine: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	if err := b.RollbackLive(t.Context(), "s", "m2"); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("to a state from before a refresh: %v", err)
	}
	b.sound("refused")
}

// TestWhatIsInUseAndIsAnotherFileInAStateKeepsItFromBeingTakenBackTo: an apply has parted what was renamed
// from the real tree.
func TestWhatIsInUseAndIsAnotherFileInAStateKeepsItFromBeingTakenBackTo(t *testing.T) {
	onFuse(t, func(t *testing.T, b *bench) {
		if err := os.Mkdir(b.workspace+"/dir", 0o755); err != nil {
			t.Fatal(err)
		}
		b.write("dir/f", "base")
		tick()
		req := b.request()
		req.Name, req.Backend = "s", "fusecow"
		_, err := b.New(t.Context(), req)
		if err == nil {
			b.in("s", "mv dir moved")
			_, err = b.Snapshot(t.Context(), "s", "m")
		}
		if err = errors.Join(err, b.Supervise.Stop(t.Context(), "s"), second(b.Reconcile.Promote(t.Context(), "s", strictly()))); err != nil {
			t.Fatal(err)
		}
		p, err := b.Supervise.Exec(t.Context(), "s", b.command("cd moved; exec 3<f; exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		b.t.Cleanup(func() { p.Close() })
		b.in("s", "cat moved/f")
		err = b.RollbackLive(t.Context(), "s", "m")
		if !errors.Is(err, errs.ErrNotSupported) || !slices.Equal(errs.HintsOf(err), []string{"snapfs rollback s m --stop"}) {
			t.Errorf("%v, hints %q", err, errs.HintsOf(err))
		}
		if got := b.in("s", "cat moved/f"); got != "base" {
			t.Errorf("what was renamed holds %q", got)
		}
		if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		b.sound("another file")
	})
}
