//go:build linux

package snapshottest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Fails says whether a backend fails a promise, without failing t. It is for
// tests of the suite itself: a backend that is broken on purpose must be found
// out. A promise that there is not fails t.
func Fails(t *testing.T, s Subject, name string) (failed bool) {
	t.Helper()
	beChild(s)
	all := promises()
	i := slices.IndexFunc(all, func(p promise) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("there is no promise %q", name)
	}
	t.Run(name, func(t *testing.T) {
		trial := &trial{TB: t}
		done := make(chan struct{})
		go func() { // what ends the test ends this goroutine
			defer close(done)
			all[i].test(newWorkbench(trial, s, s.Place))
		}()
		<-done
		failed = trial.Failed()
		t.Log(strings.Join(trial.said[:min(3, len(trial.said))], "\n"))
	})
	return failed
}

// A trial keeps failures to itself.
type trial struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

func (t *trial) fail(said string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed, t.said = true, append(t.said, said)
}

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *trial) Fail()                             { t.fail("it failed") }
func (t *trial) FailNow()                          { t.fail("it gave up"); runtime.Goexit() }
func (t *trial) Error(args ...any)                 { t.fail(fmt.Sprint(args...)) }
func (t *trial) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) {
	t.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
