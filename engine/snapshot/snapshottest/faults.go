//go:build linux

package snapshottest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func faults() []promise {
	var all []promise
	names := slices.Sorted(maps.Keys(verbs()))
	for _, kind := range []struct {
		how     string
		test    func(*workbench, string)
		storage bool
	}{
		{"%s: each step fails once and nothing is lost", failEach, false},
		{"%s: killed at each step, it leaves sound data", killEach, true},
		{"%s: cancelled at each step, it is complete or absent", cancelEach, false},
	} {
		for _, name := range names {
			all = append(all, promise{
				name: fmt.Sprintf(kind.how, name), offered: verbs()[name].offered, storage: kind.storage,
				test: func(x *workbench) { kind.test(x, name) },
			})
		}
	}
	return append(all, promise{name: "a context cancelled before it begins", test: cancelledAtOnce})
}

// WithFault returns a context with which the n-th fault point that an operation passes fails with err. A
// fault point is a place before a change on disk where the backend calls fault.Point. The first has the
// number 1, and 0 fails none. Steps.Names returns the points passed so far.
func WithFault(ctx context.Context, n int, err error) (context.Context, *Steps) {
	s := &Steps{failAt: n, err: err}
	return treetest.WithFaults(ctx, s.point), s
}

// Steps are the fault points that an operation has passed, places before a change on disk where a test can
// make it fail. [WithFault] makes it.
type Steps struct {
	mu     sync.Mutex
	names  []string
	failAt int
	err    error
	then   func() // called before err is returned
}

func (s *Steps) point(step string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, step)
	if len(s.names) != s.failAt {
		return nil
	}
	if s.then != nil {
		s.then()
	}
	return s.err
}

// Names returns the names of the fault points that the operation under test has passed so far, in order: the
// places at which the test could make it fail.
func (s *Steps) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// steps calls the method of the backend called name once, undoes it, and returns the names of the fault
// points that the call passed, each of which a test can make fail.
func (x *workbench) steps(name string) []string {
	x.Helper()
	x.ready(name, "count")
	ctx, s := WithFault(x.Context(), 0, nil)
	x.must(x.do(ctx, name, "count"))
	x.removeBoth("count", "after counting")
	if len(s.Names()) == 0 {
		x.Fatalf("%s passes no fault point (see internal/fault)", name)
	}
	return s.Names()
}

func (x *workbench) ready(name, id string) {
	x.Helper()
	if ready := verbs()[name].ready; ready != nil {
		ready(x, id)
	}
}

// do calls the method of the backend called name for id. If the method needs it, the test's fork called work
// is mounted during the call.
func (x *workbench) do(ctx context.Context, name, id string) error {
	x.Helper()
	v := verbs()[name]
	if v.inUse {
		var err error
		x.in(x.view("work"), func(string) { err = v.do(ctx, x.b, x.place.Tree, id) })
		return err
	}
	return v.do(ctx, x.b, x.place.Tree, id)
}

// failEach is the test that the method of a backend called name leaves no damage wherever it fails. It fails
// each fault point with ENOSPC, which is the likely error, and the first and last of each name with EIO,
// which no backend foresees. In make test it fails the first and last of each name with one of the two, in turn.
func failEach(x *workbench, name string) {
	prepareTree(x)
	steps := x.steps(name)
	var seen reached
	few, long := firstAndLast(steps), treetest.Long(x)
	for i, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for n, step := range steps {
			if at := slices.Index(few, n); (i > 0 || !long) && at < 0 || !long && at%2 != i {
				continue
			}
			id := fmt.Sprintf("n%d-%d", i, n)
			when := fmt.Sprintf("%s with %v at step %d, %q", name, errno, n+1, step)
			x.ready(name, id)
			ctx, s := WithFault(x.Context(), n+1, errno)
			err := x.do(ctx, name, id)
			seen.note(len(s.Names()) > n)
			if errno == syscall.ENOSPC && err != nil {
				x.fails(err, errs.ErrNoSpace, when)
			}
			x.checkAfter(name, id, when, err)
		}
	}
	seen.check(x)
	x.clean()
}

// A reached counts how many calls of a backend's method passed the fault point that was to fail (yes), and
// how many passed fewer points (no). A call may pass fewer, for example because directories exist by then,
// but most must reach it.
type reached struct{ yes, no int }

func (r *reached) note(was bool) {
	if was {
		r.yes++
	} else {
		r.no++
	}
}

func (r *reached) check(x *workbench) {
	x.Helper()
	if r.yes <= r.no {
		x.Errorf("of %d steps to fail only %d were reached", r.yes+r.no, r.yes)
	}
}

// checkAfter reopens the backend and checks that nothing is damaged after a call of its method called name
// for id, and that the call succeeds when repeated. err is the result of the call; nil means that it
// succeeded, or that the process was killed and the outcome is unknown. when describes the moment in
// failures.
func (x *workbench) checkAfter(name, id, when string, err error) {
	x.Helper()
	x.reopen()
	x.intact(when)
	there := x.look(name, id, when)
	if err != nil && there {
		x.Errorf("%s: the verb failed (%v), yet Lookup returns %s", when, err, id)
	}
	var e *errs.Error
	if err != nil && (!errors.As(err, &e) || errs.KindOf(err) == nil) {
		x.Errorf("%s: the error %q has no kind", when, err)
	}
	x.removeBoth(id, when)
	x.must(x.b.Sweep(x.Context()))
	again := "again, after " + when
	x.ready(name, id)
	x.must(x.do(x.Context(), name, id))
	if verbs()[name].makes != nothing && !x.look(name, id, again) {
		x.Errorf("%s: Lookup does not find it", again)
	}
	x.removeBoth(id, again)
}

// firstAndLast returns the indexes of the first and the last fault point of each name in steps. A test fails
// only these where failing all takes too long: large trees repeat some points many times.
func firstAndLast(steps []string) []int {
	first, last := map[string]int{}, map[string]int{}
	for n, step := range steps {
		if _, seen := first[step]; !seen {
			first[step] = n
		}
		last[step] = n
	}
	all := slices.AppendSeq(slices.Collect(maps.Values(first)), maps.Values(last))
	slices.Sort(all)
	all = slices.Compact(all)
	if testing.Short() && len(all) > 3 { // short mode looks for races; serial steps have none
		all = []int{all[0], all[len(all)/2], all[len(all)-1]}
	}
	return all
}

func killEach(x *workbench, name string) {
	prepareTree(x)
	steps := x.steps(name)
	var seen reached
	for _, n := range firstAndLast(steps) {
		id := fmt.Sprintf("n%d", n)
		when := fmt.Sprintf("%s killed at step %d, %q", name, n+1, steps[n])
		x.ready(name, id)
		kill := func() {
			killed, err := x.child(task{Verb: name, IDs: []string{id}, KillAt: int64(n + 1)})
			if err != nil {
				x.Errorf("%s: the child was not killed: %v", when, err)
			}
			seen.note(killed)
		}
		if verbs()[name].inUse {
			x.in(x.view("work"), func(string) { kill() })
		} else {
			kill()
		}
		x.checkAfter(name, id, when, nil)
	}
	seen.check(x)
	x.clean()
}

func cancelEach(x *workbench, name string) {
	prepareTree(x)
	steps := x.steps(name)
	var seen reached
	stride := treetest.Budget(x, 2, 1)
	for i, n := range firstAndLast(steps) {
		if i%stride != 0 {
			continue
		}
		id := fmt.Sprintf("n%d", n)
		when := fmt.Sprintf("%s cancelled at step %d, %q", name, n+1, steps[n])
		x.ready(name, id)
		ctx, cancel := context.WithCancel(x.Context())
		ctx, s := WithFault(ctx, n+1, nil)
		s.then = cancel
		err := x.do(ctx, name, id)
		cancel()
		seen.note(len(s.Names()) > n)
		if err != nil {
			x.fails(err, errs.ErrInterrupted, when)
		}
		x.checkAfter(name, id, when, err)
	}
	seen.check(x)
	x.clean()
}

func cancelledAtOnce(x *workbench) {
	prepareTree(x)
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	for _, name := range []string{"capture", "fork", "seal"} {
		x.fails(x.do(ctx, name, "n"), errs.ErrInterrupted, name+" with a cancelled context")
		x.intact("after " + name)
		x.lists([]snapshot.ID{"base"}, []snapshot.ForkID{"work"})
	}
	x.clean()
	if _, err := os.Stat(x.place.Tree.Path); err != nil {
		x.Error(err)
	}
}
