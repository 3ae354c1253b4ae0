package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A server of a fork that is killed while a comparison, a plan, a refresh or a promotion reads
// from it is started again, and the command ends as if nothing had happened. Cost: 3 s.
func TestAKilledServerIsStartedAgain(t *testing.T) {
	treetest.NeedDevice(t, "/dev/fuse")
	b := newBench(t)
	const files = 150
	for i := range files {
		b.write(fmt.Sprintf("f%03d", i), strings.Repeat("base\n", 999))
	}
	tick()
	req := b.request()
	req.Name, req.Backend = "s", "fusecow"
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.in("s", "for f in f*; do echo mine >> $f; done")
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"compare", func() error {
			c, err := b.Compare.Diff(t.Context(), "s", "", "")
			if err == nil {
				if c.Len() != files {
					t.Errorf("%d changes", c.Len())
				}
				c.Close()
			}
			return err
		}},
		{"plan", func() error { return second(b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})) }},
		{"refresh", func() error { return second(b.Reconcile.Refresh(t.Context(), "s", reconcile.RefreshOptions{})) }},
		{"promote", func() error { return second(b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})) }},
	} {
		killed, err := killingServers(t, 2, op.do)
		t.Logf("%s: %d servers killed", op.name, killed)
		if err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
		if killed == 0 {
			t.Errorf("%s: no server was killed", op.name)
		}
	}
	if got := b.read("f149"); !strings.HasSuffix(got, "base\nmine\n") {
		t.Errorf("promoted: %q", got[max(0, len(got)-20):])
	}
	b.sound("at the end")
}

// killingServers runs do and kills up to most servers of forks that this process starts meanwhile, each
// after some requests. It returns how many it killed.
func killingServers(t *testing.T, most int, do func() error) (killed int, err error) {
	t.Helper()
	before, end := treetest.Started(t), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		var done []int
		for killed < most {
			select {
			case <-end:
				return
			case <-time.After(200 * time.Microsecond):
			}
			lists, _ := filepath.Glob("/proc/self/task/*/children")
			for _, list := range lists {
				text, _ := os.ReadFile(list)
				for word := range strings.FieldsSeq(string(text)) {
					var pid, calls int
					_, _ = fmt.Sscan(word, &pid)
					if slices.Contains(before, pid) || slices.Contains(done, pid) {
						continue
					}
					io, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
					if _, rest, ok := strings.Cut(string(io), "syscr: "); ok {
						_, _ = fmt.Sscan(rest, &calls)
					}
					if calls < 75 {
						continue
					}
					if done = append(done, pid); unix.Kill(pid, unix.SIGKILL) == nil {
						killed++
					}
				}
			}
		}
	})
	err = do()
	close(end)
	watch.Wait()
	return killed, err
}
