package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// A disk is an ext4 that comes and goes at one place.
type disk struct {
	t           *testing.T
	dir, device string
	there       bool
}

// newDisk makes a disk with further options of mkfs.ext4.
func newDisk(t *testing.T, options ...string) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(treetest.Dir(t), "disk")}
	treetest.NeedProgram(t, "mkfs.ext4")
	image, err := os.Create(filepath.Join(treetest.Dir(t), "image"))
	if err == nil {
		defer image.Close()
		err = errors.Join(os.Mkdir(d.dir, 0o755), image.Truncate(32<<20))
	}
	if err == nil {
		_, err = run.Output(t.Context(), "mkfs.ext4", append(options, "-q", "-F", image.Name())...)
	}
	if err != nil {
		t.Fatal(err)
	}
	loop, err := loopdev.Attach(image)
	if err != nil {
		t.Fatal(err)
	}
	d.device = loop.Name()
	t.Cleanup(func() { loop.Close() })
	d.mount(true)
	return d
}

// mount puts the disk in its place, or takes it away.
func (d *disk) mount(there bool) {
	d.t.Helper()
	if d.there == there {
		return
	}
	err := error(unix.EBUSY)
	for start := time.Now(); errors.Is(err, unix.EBUSY) && time.Since(start) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if there {
			err = unix.Mount(d.device, d.dir, "ext4", 0, "")
		} else {
			err = unix.Unmount(d.dir, 0)
		}
		if err == nil {
			d.there = there
			return
		}
	}
	d.t.Fatal(err)
}

// What a killed promotion left on a disk that is not mounted waits for it: it is told
// once, and holds up its own sandbox alone. Nothing of it is lost.
func TestAKilledPromotionWaitsForItsDiskAndHoldsUpNobodyElse(t *testing.T) {
	treetest.NeedRoot(t)
	for place, at := range map[string]string{"a directory of the disk": "sub", "the whole disk": "."} {
		t.Run(place, func(t *testing.T) {
			d, state, other := newDisk(t), treetest.Dir(t), filepath.Join(treetest.Dir(t), "other") // what an undo needs lies beside it
			treetest.Leaks(t, state)
			t.Cleanup(func() { d.mount(false) })
			b := &bench{t: t, workspace: filepath.Join(d.dir, at), state: filepath.Join(state, "state")}
			if err := errors.Join(os.MkdirAll(b.workspace, 0o755), os.Mkdir(other, 0o755)); err != nil {
				t.Fatal(err)
			}
			b.Engine, _ = b.reopen()
			elsewhere := &bench{t: t, workspace: other, state: b.state}
			waited := map[string]int{}
			b.write("ended", "0")
			tick()
			b.new("before")
			b.in("before", "printf 1 > ended")
			if err := errors.Join(b.Supervise.Stop(t.Context(), "before"), second(b.Reconcile.Promote(t.Context(), "before", reconcile.PromoteOptions{})), b.Remove(t.Context(), "before")); err != nil {
				t.Fatal(err)
			}
			for op, stride := range map[string]int{"promote": 7, "undo": 3} {
				b.divergeFor(op)
				next := stride // a sample has one that had to wait
				for n := 1 + os.Getpid()%stride; ; n += next {
					o := b.child(op, n, "kill")
					if !o.killed {
						break
					}
					if len(b.journals()) > 0 {
						d.mount(false)
						b.waits(fmt.Sprintf("%s, killed at step %d", op, n), elsewhere)
						d.mount(true)
						waited[op]++
						next = sampled(t, stride)
					}
					b.goesOn(fmt.Sprintf("%s, killed at step %d", op, n))
					if err := b.Remove(t.Context(), "c"); err != nil {
						t.Fatal(err)
					}
					b.divergeFor(op)
				}
				if err := b.Remove(t.Context(), "c"); err != nil {
					t.Fatal(err)
				}
				if waited[op] == 0 {
					t.Errorf("%s: none had to wait", op)
				}
			}
		})
	}
}

// journals are the promotions that have not ended.
func (b *bench) journals() (list []string) {
	for _, n := range names(filepath.Join(b.state, "promotions")) {
		if ext := filepath.Ext(n); ext == ".journal" || ext == ".undoing" {
			list = append(list, n)
		}
	}
	return list
}

// waits: the disk is away.
func (b *bench) waits(when string, elsewhere *bench) {
	b.t.Helper()
	ctx, before := b.t.Context(), b.journals()
	var told [][]string
	for range 2 {
		e, said := b.reopen()
		b.Engine, elsewhere.Engine = e, e
		told = append(told, *said)
	}
	if said := strings.Join(told[0], "\n"); strings.Count(said, "c to "+b.workspace+" was killed") != 1 || !strings.Contains(said, "mount ") {
		b.t.Errorf("%s: told %q", when, told[0])
	}
	if len(told[1]) > 0 {
		b.t.Errorf("%s: told again: %q", when, told[1])
	}
	list, _ := b.List(ctx, true) // what is on the disk cannot be described
	i := slices.IndexFunc(list, func(i engine.Info) bool { return i.Name == "c" })
	if i < 0 || list[i].Unfinished == nil || !strings.Contains(list[i].Unfinished.String(), b.workspace) {
		b.t.Errorf("%s: the list does not say so: %+v", when, list)
	}
	for op, err := range map[string]error{
		"apply":   second(b.Reconcile.Promote(ctx, "c", strictly())),
		"promote": second(b.Reconcile.Promote(ctx, "c", reconcile.PromoteOptions{})),
		"target":  second(b.Reconcile.Promote(ctx, "c", reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Target: elsewhere.workspace}})),
		"refresh": second(b.Reconcile.Refresh(ctx, "c", reconcile.RefreshOptions{})),
		"remove":  b.Remove(ctx, "c"),
		"undo":    second(b.Reconcile.Undo(ctx, b.endedBefore())),
	} {
		if !errors.Is(err, errs.ErrBusy) || !strings.Contains(err.Error(), b.workspace) {
			b.t.Errorf("%s: %s: %v", when, op, err)
		}
	}
	elsewhere.write("f", "0")
	tick()
	elsewhere.new("o")
	elsewhere.in("o", "printf 1 > f")
	err := errors.Join(elsewhere.Supervise.Stop(ctx, "o"), second(elsewhere.Reconcile.Promote(ctx, "o", strictly())))
	if _, uerr := elsewhere.Reconcile.Promote(ctx, "o", reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Target: filepath.Dir(b.workspace)}}); uerr == nil {
		b.t.Errorf("%s: another was promoted to where the disk belongs", when)
	}
	if err = errors.Join(err, elsewhere.Remove(ctx, "o")); err != nil || elsewhere.read("f") != "1" {
		b.t.Errorf("%s: another sandbox: %v, and f is %q", when, err, elsewhere.read("f"))
	}
	if _, err := b.Collect(ctx); err != nil {
		b.t.Errorf("%s: collecting: %v", when, err)
	}
	if after := b.journals(); !slices.Equal(after, before) {
		b.t.Errorf("%s: of the journals %v there is %v", when, before, after)
	}
}

// goesOn: the disk is back.
func (b *bench) goesOn(when string) {
	b.t.Helper()
	b.Engine, _ = b.reopen()
	b.sound(when)
	if real := b.whole(); real != "real" && real != "promoted" {
		b.t.Errorf("%s: the real tree: %s", when, real)
	}
	if left := b.journals(); len(left) > 0 || len(b.Reconcile.Unfinished()) > 0 {
		b.t.Errorf("%s: unfinished: %v %v", when, left, b.Reconcile.Unfinished())
	}
	for _, n := range names(filepath.Join(b.state, "promotions")) {
		if strings.HasSuffix(n, ".told") {
			b.t.Errorf("%s: left: %s", when, n)
		}
	}
	b.holdsItsOwn(when)
}

// endedBefore is a promotion to the same target, by another sandbox.
func (b *bench) endedBefore() string {
	b.t.Helper()
	all, err := b.Reconcile.Promotions()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range all {
		if p.Sandbox == "before" {
			return p.ID
		}
	}
	b.t.Fatalf("it is not in %+v", all)
	return ""
}

func second[T any](_ T, err error) error { return err }
