package diff

import (
	"context"
	"os"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// The two sides, as indexes of every [2]array in this package.
const (
	older = iota
	newer
)

// workerCount is how many threads walk: a second one halves the time of a warm
// walk, a third gains nothing there.
const workerCount = 2

// A walk is one comparison of two trees.
type walk struct {
	ctx  context.Context
	opt  Options
	root [2]int
	top  [2]vfs.Stat // the roots

	workers []*worker
	// named are the directories that differ in their time and were not listed.
	named []string
	// unnamed are those that have to be, whoever says that it is not needed.
	unnamed map[string]bool

	mu    sync.Mutex
	wake  *sync.Cond
	tasks []task
	busy  int   // workers that may still push
	err   error // the first
}

// A task is a directory to list, on one side or on both. Tasks name their
// directory by path, so that a walk holds two descriptors a worker however
// deep or wide the tree is.
type task struct {
	path string
	on   [2]bool
	// deep: names that both sides have are compared too, and walked.
	deep bool
	// try counts how often the place was looked at again because it moved.
	try int
}

// found is a change, or with neither node a place that a later look found
// equal, or with no aspect a node whose link count alone differs.
type found struct {
	Change
	try int
}

// A worker is one thread of a walk, with its buffers.
type worker struct {
	*walk
	found []found
	names [2][]vfs.Entry
	data  [2][]byte
	// covered are the paths whose subtree has been, or is to be, walked
	// whole; nil when nobody asks.
	covered map[string]bool
	// named are those of the walk that this worker met, and denied are directories
	// with a touched name that neither side lets it look at.
	named, denied []string
}

func newWalk(ctx context.Context, old, new *os.File, opt Options) (*walk, error) {
	d := &walk{ctx: ctx, opt: opt, root: [2]int{int(old.Fd()), int(new.Fd())}}
	d.wake = sync.NewCond(&d.mu)
	for i, fd := range d.root {
		var err error
		if d.top[i], err = vfs.Lstat(fd, ""); err != nil {
			return nil, fail(".", err)
		}
	}
	d.worker()
	return d, nil
}

func (d *walk) worker() *worker {
	w := &worker{walk: d}
	d.workers = append(d.workers, w)
	return w
}

func (d *walk) push(t task) {
	d.mu.Lock()
	d.tasks = append(d.tasks, t)
	d.mu.Unlock()
	d.wake.Signal()
}

// drain carries out all tasks and those that they push.
func (d *walk) drain() error {
	if len(d.tasks) == 0 {
		return d.err
	}
	for len(d.workers) < workerCount {
		d.worker()
	}
	d.busy = len(d.workers)
	var others sync.WaitGroup
	for _, w := range d.workers[1:] {
		others.Go(w.work)
	}
	d.workers[0].work()
	others.Wait()
	return d.err
}

func (w *worker) work() {
	for {
		t, ok := w.next()
		if !ok {
			return
		}
		if err := w.dir(t); err != nil {
			w.mu.Lock()
			if w.err == nil {
				w.err = err
			}
			w.mu.Unlock()
		}
	}
}

// next waits for a task. There is none any more when every worker waits, or
// one has met an error.
func (w *worker) next() (task, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	for len(w.tasks) == 0 && w.busy > 0 && w.err == nil {
		w.wake.Wait()
	}
	if len(w.tasks) == 0 || w.err != nil {
		w.wake.Broadcast()
		return task{}, false
	}
	w.busy++
	last := len(w.tasks) - 1
	t := w.tasks[last]
	w.tasks = w.tasks[:last]
	return t, true
}
