package diff

import (
	"context"
	"os"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// The indexes of the old and the new tree in every array of two of this package, such as the two open
// directories.
const (
	older = iota
	newer
)

// workerCount is the number of threads that compare trees. The second one halves the time of a warm walk; a
// third gains nothing.
const workerCount = 2

// A walk is the state of one comparison of two trees, by [Trees] or [At], which its threads share.
type walk struct {
	ctx  context.Context
	opt  Options
	root [2]int
	top  [2]vfs.Stat // the roots

	workers []*worker
	// unlisted lists directories that differ in time and were not listed.
	unlisted []string
	// mustList holds the directories that must be listed although a candidate says that its
	// names need not be.
	mustList map[string]bool
	// folds are the renamed directories of which only changed entries are listed.
	folds folds

	mu    sync.Mutex
	wake  *sync.Cond
	tasks []task
	busy  int   // workers that may still push
	err   error // the first error
}

// A task is a directory to list and compare, on one side or on both. It holds the path, not a descriptor, so
// that a walk has two descriptors open for each thread, however deep or wide the tree is.
type task struct {
	path string
	on   [2]bool
	// deep is set if nodes that both sides have are compared, and directories walked;
	// otherwise only the names in the directory are compared.
	deep bool
	// try counts the retries after the path changed.
	try int
}

// A found is a change that one thread of a comparison found. It has no nodes for a path that a later try
// found equal, and no aspect for a file of which only the link count differs.
type found struct {
	Change
	try int
}

// A worker is one thread of a comparison of two trees, with the buffers that it reuses from directory to
// directory.
type worker struct {
	*walk
	found []found
	names [2][]vfs.Entry
	data  [2][]byte
	// covered holds the paths whose subtree is walked whole; nil unless visit runs.
	covered map[string]bool
	// unlisted is this worker's part of walk.unlisted. denied lists directories with a touched
	// name that this process may stat on neither side.
	unlisted, denied []string
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

// drain compares all directories that are queued for comparison, including those that are queued meanwhile,
// on all threads.
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
		if err := w.runTask(t); err != nil {
			w.mu.Lock()
			if w.err == nil {
				w.err = err
			}
			w.mu.Unlock()
		}
	}
}

// next waits for a queued directory to compare and returns it. It returns false when every thread waits, so
// that the comparison is complete, or after an error.
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
