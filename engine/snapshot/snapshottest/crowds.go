//go:build linux

package snapshottest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func crowds() []promise {
	return []promise{
		{name: "a hundred forks at once", test: manyForks},
		{name: "of many calls with one id exactly one succeeds", test: oneWins},
		{name: "forks from several processes at once", test: manyProcesses},
		{name: "captures, forks and removals at once", test: mixedCrowd},
	}
}

// atOnce calls do in n goroutines that start together, each with its number, and returns their errors.
func atOnce(n int, do func(i int) error) []error {
	var wg sync.WaitGroup
	failures := make([]error, n)
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			failures[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return failures
}

func manyForks(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	n := treetest.Budget(x, 20, 100)
	id := func(i int) snapshot.ForkID { return snapshot.ForkID(fmt.Sprintf("f%02d", i)) }
	for _, err := range atOnce(n, func(i int) error {
		_, err := x.b.Fork(x.Context(), "s1", id(i))
		return err
	}) {
		x.must(err)
	}
	for i := range n {
		if i%9 == 0 {
			x.in(x.view(id(i)), func(dir string) { x.put(dir, "file", string(id(i))) })
		}
	}
	for i := range n {
		want := "base"
		if i%9 == 0 {
			want = string(id(i))
		}
		x.has(x.view(id(i)), "file", want, string(id(i)))
	}
	for _, err := range atOnce(n, func(i int) error { return x.b.RemoveFork(x.Context(), id(i)) }) {
		x.must(err)
	}
	x.lists([]snapshot.ID{"s1"}, nil)
	x.clean()
}

func oneWins(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	count := func(failures []error, doing string) {
		x.Helper()
		won := 0
		for _, err := range failures {
			if err == nil {
				won++
			} else {
				x.fails(err, errs.ErrExists, doing)
			}
		}
		if won != 1 {
			x.Errorf("%s: %d succeeded", doing, won)
		}
	}
	count(atOnce(16, func(int) error {
		_, err := x.b.Fork(x.Context(), "s1", "f1")
		return err
	}), "forking with one id at once")
	x.write("more", "since s1") // a backend may return s1 for an unchanged tree
	x.stamp("s2")
	count(atOnce(16, func(int) error {
		_, err := x.b.Capture(x.Context(), x.place.Tree, "s2")
		return err
	}), "capturing with one id at once")
	x.has(x.view("f1"), "file", "base", "the fork")
	x.has(x.snap("s2"), "file", "base", "the capture")
	x.clean()
}

func manyProcesses(x *workbench) {
	prepareTree(x)
	processes, each := treetest.Budget(x, 4, 6), treetest.Budget(x, 3, 8)
	var all []snapshot.ForkID
	lists := make([][]string, processes)
	for p := range processes {
		for i := range each {
			lists[p] = append(lists[p], fmt.Sprintf("p%d-%d", p, i))
			all = append(all, snapshot.ForkID(lists[p][i]))
		}
	}
	for _, err := range atOnce(processes, func(p int) error {
		_, err := x.child(task{Verb: "fork", IDs: lists[p]})
		return err
	}) {
		x.must(err)
	}
	slices.Sort(all)
	x.lists([]snapshot.ID{"base"}, append(all, "work"))
	for _, id := range all {
		x.isReal(x.view(id), string(id))
	}
	for _, err := range atOnce(processes, func(p int) error {
		_, err := x.child(task{Verb: "remove a fork", IDs: lists[p]})
		return err
	}) {
		x.must(err)
	}
	x.lists([]snapshot.ID{"base"}, []snapshot.ForkID{"work"})
	x.intact("after the crowd")
	x.clean()
}

// mixedCrowd is a test that every backend must pass: many goroutines capture, fork, seal and remove at once
// while another sweeps.
func mixedCrowd(x *workbench) {
	x.write("file", "base")
	done := make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		for {
			if err := x.b.Sweep(x.Context()); err != nil {
				x.Error("sweeping beside the crowd:", err)
			}
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	failures := atOnce(16, func(i int) error { return x.cycle(fmt.Sprintf("c%d", i)) })
	close(done)
	sweeping.Wait()
	for _, err := range failures {
		x.must(err)
	}
	x.lists(nil, nil)
	x.clean()
}

// cycle captures the tree, forks the snapshot, seals the fork and removes everything again, with ids that
// begin with id. It ends early if the backend returns the equal snapshot of another goroutine, which will
// remove it.
func (x *workbench) cycle(id string) error {
	s, err := x.b.Capture(x.Context(), x.place.Tree, snapshot.ID(id))
	if err != nil || s.ID != snapshot.ID(id) {
		return err
	}
	for i := range 4 {
		f := snapshot.ForkID(fmt.Sprintf("%s-%d", id, i))
		if _, err := x.b.Fork(x.Context(), s.ID, f); err != nil {
			return err
		}
		sealed := snapshot.ID(fmt.Sprintf("%s-%d", id, i))
		if _, err := x.b.Seal(x.Context(), f, sealed, snapshot.Idle); err != nil {
			return err
		}
		if err := x.b.RemoveFork(x.Context(), f); err != nil {
			return err
		}
		if err := x.b.Remove(x.Context(), sealed); err != nil {
			return err
		}
	}
	return x.b.Remove(x.Context(), s.ID)
}
