package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

const keeperEnv = "SNAPFS_TEST_KEEPER"

// holdEnv holds the name of a step of a supervisor, an equals sign, and a path: the supervisor waits before the step as
// long as that file exists.
const holdEnv = "SNAPFS_TEST_HOLD"

// rehearsedKeeper is the context of a supervisor that waits at the step of holdEnv, or fails at a step: keeperEnv
// holds its number, how it fails, and a file that says it was reached.
func rehearsedKeeper() (ctx context.Context, arm func()) {
	if step, gate, held := strings.Cut(os.Getenv(holdEnv), "="); held {
		return treetest.WithFaults(context.Background(), func(now string) error {
			for now == step && isThere(gate) {
				time.Sleep(time.Millisecond)
			}
			return nil
		}), func() {}
	}
	n, rest, rehearsed := strings.Cut(os.Getenv(keeperEnv), " ")
	if !rehearsed {
		return treetest.WithFaults(context.Background(), editingPlan), func() {}
	}
	r := new(rehearsal)
	r.n, _ = strconv.ParseInt(n, 10, 64)
	r.mode, r.hit, _ = strings.Cut(rest, " ")
	return treetest.WithFaults(context.Background(), r.plan), func() { r.armed.Store(true) }
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAKeeperThatFailsAtAnyStepIsMended(t *testing.T) { asBoth(t, aKeeperThatFailsIsMended) }

func aKeeperThatFailsIsMended(t *testing.T, b *bench) {
	b.setStage()
	for _, mode := range []string{"kill", "fail"} {
		hit := filepath.Join(filepath.Dir(b.state), "hit-"+mode)
		for n := 1; ; n += sampled(t, 1) {
			when := fmt.Sprintf("a keeper, %s at step %d", mode, n)
			if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			t.Setenv(keeperEnv, fmt.Sprint(n, " ", mode, " ", hit))
			err := operations()["exec"].do(t.Context(), b)
			t.Setenv(keeperEnv, "")
			b.sound(when)
			if got := b.in("s", "cat f"); got != "2" {
				t.Errorf("%s: f is %q", when, got)
			}
			if _, unreached := os.Lstat(hit); unreached != nil {
				if err != nil || n < 4 {
					t.Errorf("%s: %v", when, err)
				}
				break
			}
			if mode == "kill" {
				b.Engine, _ = b.reopen()
			}
			if err := os.Remove(hit); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAKilledKeeperTakesItsProcessesAlong(t *testing.T) { asEach(t, aKilledKeeper) }

func aKilledKeeper(t *testing.T, b *bench) {
	b.setStage()
	p, err := b.Supervise.Exec(t.Context(), "s", b.command("echo 3 > f; sync; exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for b.in("s", "cat f") != "3\n" {
	}
	if err := syscall.Kill(b.keeperOf("s").PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(t.Context()); err != nil || st.Signal != syscall.SIGKILL {
		t.Errorf("its command ended with %v, %v", st, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(b.state, "sandboxes/s/keeper")); err != nil {
		t.Errorf("the socket that a killed keeper leaves: %v", err)
	}
	if got := b.in("s", "cat f"); got != "3\n" { // in spite of the socket
		t.Errorf("f is %q", got)
	}
	b.sound("a keeper killed")
	if err := b.Rollback(t.Context(), "s", "m1"); err != nil {
		t.Error(err)
	}
}

func TestAKilledRunTakesItsProcessesAlong(t *testing.T) { asBoth(t, aKilledRun) }

func aKilledRun(t *testing.T, b *bench) {
	b.write("f", "0")
	cmd, err := run.Background([]string{"/proc/self/exe", "rehearse", b.state, b.workspace, "sleep", "0", ""}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for len(names(filepath.Join(b.state, "active"))) == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // somewhere in the run
	if err := cmd.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	e, said := b.reopen()
	if len(*said) != 1 || !strings.Contains((*said)[0], "was killed") {
		t.Errorf("it is said: %q", *said)
	}
	b.Engine = e
	b.sound("a run killed")
}

func TestAKilledCommandIsReportedAsSuch(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		s, _, st := b.sh("kill -9 $$")
		if st.Signal != syscall.SIGKILL {
			t.Errorf("got %v", st)
		}
		if err := s.Discard(t.Context()); err != nil {
			t.Error(err)
		}
		b.sound("a command killed")
	})
}

func TestNothingOutlivesItsSandbox(t *testing.T) { asBoth(t, nothingOutlivesItsSandbox) }

func nothingOutlivesItsSandbox(t *testing.T, b *bench) {
	const ignoring = "trap '' TERM HUP INT; "
	for name, script := range map[string]string{
		"children":  ignoring + "i=0; while [ $i -lt 1000 ]; do sleep 600 & i=$((i+1)); done; echo up; wait",
		"daemon":    "(setsid sh -c '" + ignoring + "(echo up; exec sleep 600) &') & exit 0",
		"stubborn":  ignoring + "echo up; while :; do sleep 600; done",
		"stopped":   "echo up; kill -STOP $$",
		"fork bomb": ignoring + "f() { sleep 600 & [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; wait; }; echo up; f 7",
	} {
		b.new("p")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := b.command(script)
		c.Stdout = w
		p, err := b.Supervise.Exec(t.Context(), "p", c)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Read(make([]byte, 3))
		r.Close()
		before := len(inside(b))
		start := time.Now()
		if err = errors.Join(err, b.Remove(t.Context(), "p")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		took := time.Since(start)
		if left := inside(b); before == 0 || len(left) > 0 || took > 30*time.Second {
			t.Errorf("%s: %d processes, and %v after %v", name, before, left, took)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// inside lists the processes in this test's sandboxes: those that descend from
// a supervisor of its state directory and have another pid namespace than this
// process. A process that ends while it is looked at has no namespace any more
// and is left out.
func inside(b *bench) (pids []string) {
	own, _ := os.Readlink("/proc/self/ns/pid")
	keepers, parents := map[string]bool{}, map[string]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		args, _ := os.ReadFile(d + "/cmdline")
		keepers[filepath.Base(d)] = strings.Contains(string(args), b.state)
		stat, _ := os.ReadFile(d + "/stat")
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 1 && fields[0] != "Z" {
			parents[filepath.Base(d)] = fields[1]
		}
	}
	for pid := range parents {
		for up := pid; up != ""; up = parents[up] {
			ns, err := os.Readlink("/proc/" + pid + "/ns/pid")
			if err == nil && keepers[up] && ns != own {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
