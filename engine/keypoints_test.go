package engine_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/timeline"
)

// withKeyPoints makes a sandbox that takes snapshots by itself.
func (b *bench) withKeyPoints(name string, k catalog.KeyPoints) {
	b.t.Helper()
	b.withKeyPointsOn(name, "", k)
}

// withKeyPointsOn does as withKeyPoints, with this backend.
func (b *bench) withKeyPointsOn(name, backend string, k catalog.KeyPoints) {
	b.t.Helper()
	req := b.request()
	req.Name, req.Backend, req.Policy.KeyPoints = name, cmp.Or(backend, req.Backend), &k
	if _, err := b.New(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	b.removeLater(name)
}

// points returns the snapshots of a sandbox as text, once those that are due have been taken.
func (b *bench) points(name string) (all []string) {
	b.t.Helper()
	rec, err := timeline.Settled(b.t.Context(), b.Engine, name)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range rec.Snapshots {
		text := m.Name
		if m.Why != nil {
			why := *m.Why
			why.Command = why.Command[min(2, len(why.Command)):] // without sh -c
			text += " " + keypoint.Text(why)
		}
		all = append(all, text)
	}
	return all
}

func (b *bench) wantPoints(name, what string, want ...string) {
	b.t.Helper()
	if got := b.points(name); strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// TestCommandsHaveSnapshots: a snapshot after each command that changed something, and before one where something had
// changed meanwhile, with the reason. Going back works, and says nothing new. Cost: a second.
func TestCommandsHaveSnapshots(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec, catalog.AtRollback}})
		b.in("s", "echo 1 > f")
		b.in("s", "true")
		b.fails("s", "echo 2 > f; exit 3", 3)
		b.wantPoints("s", "after three commands", "k1 after exec (exit 0): 'echo 1 > f'", "k2 after exec (exit 3): 'echo 2 > f; exit 3'")
		if err := b.Rollback(t.Context(), "s", "k1"); err != nil {
			t.Fatal(err)
		}
		b.wantPoints("s", "after a rollback", "k1 after exec (exit 0): 'echo 1 > f'", "k2 after exec (exit 3): 'echo 2 > f; exit 3'")
		if got := b.in("s", "cat f"); got != "1\n" {
			t.Errorf("the file of k1: %q", got)
		}
		tl, err := timeline.Of(t.Context(), b.Engine, "s")
		if err != nil {
			t.Fatal(err)
		}
		if first := tl.Entries[0].Changed; first.Added != 1 || strings.Join(first.Paths, " ") != "f" {
			t.Errorf("the first snapshot changed %+v", first)
		}
		if second := tl.Entries[1].Changed; second.Modified != 1 || strings.Join(second.Paths, " ") != "f" || second.Unknown != "" {
			t.Errorf("the second snapshot changed %+v", second)
		}
	})
}

// fails runs a command in a sandbox and wants this exit status.
func (b *bench) fails(name, script string, status int) {
	b.t.Helper()
	p, err := b.Supervise.Exec(b.t.Context(), name, b.command(script))
	if err != nil {
		b.t.Fatal(err)
	}
	defer p.Close()
	if st, err := p.Wait(b.t.Context()); err != nil || st.ExitCode() != status {
		b.t.Errorf("%s: %v, %v", script, st, err)
	}
}

// TestSnapshotsOfCommandsAtTheSameTime: a command that ends while another one runs has a snapshot at once, and a killed
// supervisor loses none that was due. Cost: a second.
func TestSnapshotsOfCommandsAtTheSameTime(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec}})
		p, err := b.Supervise.Exec(t.Context(), "s", b.command("exec sleep 600"))
		if err != nil {
			t.Fatal(err)
		}
		b.in("s", "echo 1 > f")
		b.in("s", "true")
		b.wantPoints("s", "while another command runs", "k1 after exec (exit 0): 'echo 1 > f'")
		keeper := b.keeperOf("s")
		if err := syscall.Kill(keeper.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if st, err := p.Wait(t.Context()); err != nil || st.ExitCode() != 128+9 {
			t.Errorf("the command of a killed supervisor: %v, %v", st, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		untilDead(t, keeper)
		if err := b.KeyPoints.Postpone("s", catalog.Why{Point: catalog.AtExec, When: keypoint.After, Command: []string{"/bin/sh", "-c", "lost"}}); err != nil {
			t.Fatal(err)
		}
		b.in("s", "echo 2 > f")
		b.wantPoints("s", "nothing had changed", "k1 after exec (exit 0): 'echo 1 > f'", "k2 after exec (exit 0): 'echo 2 > f'")
		if _, err := b.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// untilDead waits until a killed process is gone.
func untilDead(t testing.TB, p proc.Process) {
	t.Helper()
	for end := time.Now().Add(time.Minute); proc.Alive(p); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a killed process is still there")
		}
	}
}

// TestAListMissesNoSnapshot: another process takes a postponed snapshot while a process reads the list of snapshots. The
// list has that snapshot. Cost: half a second.
func TestAListMissesNoSnapshot(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtPlan}})
		b.in("s", "echo 1 > f")
		b.halt("s")
		if err := b.KeyPoints.Postpone("s", catalog.Why{Point: catalog.AtPlan, When: keypoint.After}); err != nil {
			t.Fatal(err)
		}
		ctx := treetest.WithFaults(t.Context(), func(step string) error {
			if step != "read the record" {
				return nil
			}
			h, err := b.Supervise.HoldAny(t.Context(), "s")
			if err == nil {
				h.Release()
			}
			return err
		})
		rec, err := timeline.Settled(ctx, b.Engine, "s")
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.Snapshots) != 1 || b.KeyPoints.HasPostponed("s") {
			t.Errorf("the list has %d snapshots, and one is due: %v", len(rec.Snapshots), b.KeyPoints.HasPostponed("s"))
		}
	})
}

// TestASnapshotWaitsForALongLock: another process holds the sandbox's lock for longer than the snapshot after a command
// waits. The next command takes that snapshot. Cost: six seconds.
func TestASnapshotWaitsForALongLock(t *testing.T) {
	if !treetest.Long(t) {
		return
	}
	asRoot(t, func(t *testing.T, b *bench) {
		b.besideAnother(func(end func()) {
			h, err := b.Catalog().Lock(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			end()
			h.Release()
			b.wantPoints("s", "after the lock was released", "k1 after exec (exit 0): 'read line; echo 1 > f'")
		})
	})
}

// TestASnapshotWaitsForAnUnfinishedRollback: the files of a sandbox whose live rollback was killed are not in one state.
// The snapshot after a command waits until another command has completed the rollback. Cost: half a second.
func TestASnapshotWaitsForAnUnfinishedRollback(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.besideAnother(func(end func()) {
			h, err := b.Catalog().Lock(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			h.LiveRollback = &catalog.LiveRollback{}
			err = h.Save()
			h.Release()
			if err != nil {
				t.Fatal(err)
			}
			end()
			if rec, err := b.Catalog().Get("s"); err != nil || len(rec.Snapshots) > 0 || !b.KeyPoints.HasPostponed("s") {
				t.Errorf("a snapshot was taken before the rollback was completed: %v", err)
			}
			b.wantPoints("s", "after the rollback", "k1 after exec (exit 0): 'read line; echo 1 > f'")
		})
	})
}

// besideAnother makes the sandbox s, in which a command runs until do returns, and starts another command that writes a
// file. It calls do, which calls end to let the second command write, and to wait until that has ended.
func (b *bench) besideAnother(do func(end func())) {
	b.t.Helper()
	b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec}})
	p, err := b.Supervise.Exec(b.t.Context(), "s", b.command("exec sleep 600"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer p.Close()
	stdin, write, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer write.Close()
	command := b.command("read line; echo 1 > f")
	command.Stdin = stdin
	second, err := b.Supervise.Exec(b.t.Context(), "s", command)
	stdin.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	defer second.Close()
	do(func() {
		_, err := write.WriteString("\n")
		if _, werr := second.Wait(b.t.Context()); errors.Join(err, werr) != nil {
			b.t.Fatal(errors.Join(err, werr))
		}
	})
}

// TestDriftHasASnapshot: when a real file changes while a sandbox runs, the sandbox's state at that time stays. Cost: two
// seconds.
func TestDriftHasASnapshot(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", "old")
		tick()
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtDrift}})
		r := b.resident("s")
		defer r.end()
		r.do(t, "echo 1 > mine")
		b.write("text", "new")
		b.soon("a snapshot at the drift", func() bool { return len(b.points("s")) > 0 })
		b.wantPoints("s", "after a change of the real tree", "k1 drift")
	})
}

// TestADetachedCommandHasASnapshot: nobody waits for it, and it has its snapshot nevertheless. Cost: a second.
func TestADetachedCommandHasASnapshot(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec}})
		if _, err := b.Supervise.Detach(t.Context(), "s", b.command("echo 1 > f; exit 4"), supervise.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); len(b.points("s")) == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			continue
		}
		b.wantPoints("s", "after a detached command", "k1 after exec (exit 4): 'echo 1 > f; exit 4'")
	})
}

// TestOldSnapshotsGo: the oldest ones that snapfs took by itself go, beyond their number. What a person named, what was
// promoted, what another sandbox was forked from, and the newest one stay. Cost: a second.
func TestOldSnapshotsGo(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec, catalog.AtPromotion}, Keep: 2})
		b.in("s", "echo 1 > f")
		must(b.Snapshot(t.Context(), "s", "mine"))
		b.in("s", "echo 2 > f")
		must(b.Fork(t.Context(), "s", "k2", "forked"))
		b.removeLater("forked")
		b.in("s", "echo 3 > f")
		must(b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}))
		for _, n := range []string{"4", "5", "6"} {
			b.in("s", "echo "+n+" > f")
		}
		b.points("s")
		rec, err := b.Catalog().Get("s")
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, m := range rec.Snapshots {
			left = append(left, m.Parent+">"+m.Name)
		}
		if got, want := strings.Join(left, " "), ">mine mine>k2 k2>k3 k3>k6"; got != want {
			t.Errorf("left: %s, not %s", got, want)
		}
		if got := b.in("s", "cat f"); got != "6\n" {
			t.Errorf("the file: %q", got)
		}
		if got := b.in("forked", "cat f"); got != "2\n" {
			t.Errorf("the file of the fork: %q", got)
		}
		must(b.Collect(t.Context()))
		if err := b.Rollback(t.Context(), "s", "k3"); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeSnapshotsGo: the oldest ones that snapfs took by itself go as long as all of them hold more space by
// themselves than the rule allows. The newest one stays. Cost: a second.
func TestLargeSnapshotsGo(t *testing.T) {
	left := func(b *bench) (names string) {
		for _, point := range b.points("s") {
			name, _, _ := strings.Cut(point, " ")
			names += name + " "
		}
		return names
	}
	asRoot(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec}, KeepSize: 7 << 19})
		p, err := b.Supervise.Exec(t.Context(), "s", b.command("exec sleep 600")) // beside it each snapshot is a copy
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, want := range []string{"k1 ", "k1 k2 ", "k3 "} { // of one, two and three MiB
			b.in("s", "head -c 1048576 /dev/urandom > $$")
			if got := left(b); got != want {
				t.Errorf("left: %q, not %q", got, want)
			}
		}
	})
	t.Run("plain", func(t *testing.T) { // each snapshot is a copy
		treetest.NeedRoot(t)
		work := treetest.Ext4(t, 16<<20) // all of it is copied
		if err := os.RemoveAll(filepath.Join(work, "lost+found")); err != nil {
			t.Fatal(err)
		}
		b := benchIn(t, work, treetest.Ext4(t, 64<<20))
		b.withKeyPointsOn("s", "plain", catalog.KeyPoints{At: []string{catalog.AtExec}, KeepSize: 5 << 19})
		for _, want := range []string{"k1 ", "k1 k2 ", "k2 k3 "} { // of a MiB each
			b.in("s", "head -c 1048576 /dev/urandom > f")
			if got := left(b); got != want {
				t.Errorf("left: %q, not %q", got, want)
			}
		}
	})
	onBtrfs(t, func(t *testing.T, b *bench) {
		treetest.NeedRoot(t)
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec}, KeepSize: 3 << 19})
		for _, want := range []string{"k1 ", "k1 k2 ", "k2 k3 ", "k3 k4 "} { // the newest shares the file with the sandbox
			b.in("s", "head -c 1048576 /dev/urandom > f")
			if got := left(b); got != want {
				t.Errorf("left: %q, not %q", got, want)
			}
		}
	})
}

// TestAFailedSnapshotIsNoFailedCommand: the error says what is missing, nothing half done is left, and the sandbox
// works on. Cost: half a second.
func TestAFailedSnapshotIsNoFailedCommand(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtPlan}})
		b.in("s", "echo 1 > f")
		b.halt("s")
		h, err := b.Catalog().Lock(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		full := func(context.Context, *catalog.Locked, []snapshot.ID) error { return errs.ErrNoSpace }
		why := catalog.Why{Point: catalog.AtPlan, When: keypoint.Before}
		err = b.KeyPoints.Try(t.Context(), h, full, why)
		h.Release()
		if !errors.Is(err, errs.ErrNoSpace) || !strings.Contains(err.Error(), "no snapshot of s before plan") {
			t.Errorf("on a full disk: %v", err)
		}
		b.wantPoints("s", "after a failed snapshot")
		if _, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{}); err != nil {
			t.Error(err)
		}
		b.wantPoints("s", "after a plan", "k1 before plan")
	})
}
