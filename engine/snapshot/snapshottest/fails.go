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

// Fails reports whether the backend s breaks the promise called name, a rule of package snapshot, without
// failing t. By it, the suite's own tests prove that the suite detects a deliberately broken backend. An
// unknown promise fails t.
func Fails(t *testing.T, s Subject, name string) (failed bool) {
	t.Helper()
	beChild(s)
	all := promises()
	i := slices.IndexFunc(all, func(p promise) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("no promise is named %q", name)
	}
	t.Run(name, func(t *testing.T) {
		recorder := &recorder{TB: t}
		done := make(chan struct{})
		go func() { // Goexit of a failed test ends only this goroutine
			defer close(done)
			all[i].test(all[i].workbench(recorder, s))
		}()
		<-done
		failed = recorder.Failed()
		t.Log(strings.Join(recorder.said[:min(3, len(recorder.said))], "\n"))
	})
	return failed
}

// A recorder is a testing.TB that stores the failures of a test instead of reporting them. [Fails] uses it to
// show that the suite finds a broken backend.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

func (t *recorder) fail(said string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed, t.said = true, append(t.said, said)
}

func (t *recorder) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *recorder) Fail()                             { t.fail("it failed") }
func (t *recorder) FailNow()                          { t.fail("it gave up"); runtime.Goexit() }
func (t *recorder) Error(args ...any)                 { t.fail(fmt.Sprint(args...)) }
func (t *recorder) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }
func (t *recorder) Fatal(args ...any)                 { t.fail(fmt.Sprint(args...)); runtime.Goexit() }

func (t *recorder) Fatalf(format string, args ...any) {
	t.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
