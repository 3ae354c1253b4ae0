package compare

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// changesSince lists the paths of t's real tree, at and below the relative path below, whose change time is
// at or after that of the live base. It leaves out paths for which skip returns true. The paths of the result
// are relative to the tree.
func changesSince(ctx context.Context, t catalog.Tree, below string, skip func(string) bool) ([]diff.Change, error) {
	places, err := changedSince(ctx, filepath.Join(t.Path, below), t.Taken, func(path string) bool {
		return skip(filepath.Join(below, path))
	})
	if err != nil {
		return nil, err
	}
	changes := make([]diff.Change, 0, len(places))
	for _, p := range places {
		changes = append(changes, diff.Change{Path: filepath.Join(below, p.path), Kind: diff.Modified, New: diff.NodeOf(&p.st)})
	}
	return changes, nil
}

// A changedPath is a path that a search of a tree found because its change time (ctime) is at or after a
// given time.
type changedPath struct {
	path string // relative to the start of the walk; "." is the start itself
	st   vfs.Stat
}

// errManyNames is the error of a walk that reached its deadline after more than manyNames directory entries.
// The caller then notes that the directory is too large to search in the time given.
var errManyNames = errors.New("the directory is too large for the time")

const manyNames = 2048

// namesBetween is how many directory entries a search by change time handles between two checks of its deadline: few,
// so that it ends in time, and enough that reading the clock costs little.
const namesBetween = 32

// expired returns the error of ctx, with which a search for changed files runs, if it has ended or its
// deadline has passed. It reads the clock, because the timer of a context is late while all threads are in
// system calls.
func expired(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// changedSince walks a directory, within its mount, and lists all paths with a change time at or after since,
// in the order of [diff.Less]. It leaves out paths for which skip returns true, and those that this user may
// not read, as the user cannot have changed them. Cost: a statx of each entry, in walkThreads threads. When
// ctx ends, it returns within namesBetween entries.
//
// Errors: errs.ErrNotFound, ErrInterrupted, errManyNames.
func changedSince(ctx context.Context, dir string, since time.Time, skip func(string) bool) ([]changedPath, error) {
	threads := walkThreads
	if most, ok := ctx.Value(threadsKey{}).(int); ok {
		threads = most
	}
	return walkSince(ctx, dir, since, skip, threads)
}

// A threadsKey is the context key of the number of threads that a walk may use.
type threadsKey struct{}

// sparing returns a context in which [changedSince] leaves one processor free. Work beside the walk, such as a
// checkpoint, waits for other processes, which need a processor.
func sparing(ctx context.Context) context.Context {
	return context.WithValue(ctx, threadsKey{}, max(1, min(walkThreads, runtime.GOMAXPROCS(0)-1)))
}

// walkThreads is how many threads search a directory by change time. On two processors under other load, one
// thread took 1.02 of the time of find -cnewer for 100,000 warm files, two took 0.75, and four 0.66
// (BenchmarkWalkBesideFind).
const walkThreads = 4

// walkSince searches a directory for paths with a change time at or after since, as [changedSince] does, with the
// given number of threads, which a benchmark varies. It leaves out paths for which skip returns true.
func walkSince(ctx context.Context, dir string, since time.Time, skip func(string) bool, threads int) ([]changedPath, error) {
	fail := func(err error) ([]changedPath, error) {
		return nil, errs.With("walking", dir, err)
	}
	root, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	top, err := vfs.Lstat(int(root.Fd()), "")
	if err != nil {
		return fail(err)
	}
	w := ctimeWalk{
		ctx: ctx, root: int(root.Fd()), top: top, skip: skip, dirs: []string{"."},
		since: vfs.Timestamp{Sec: since.Unix(), Nsec: uint32(since.Nanosecond())}, busy: threads,
	}
	w.wake = sync.NewCond(&w.mu)
	workers := make([]ctimeWorker, threads)
	var wait sync.WaitGroup
	for i := range workers {
		workers[i].ctimeWalk = &w
		wait.Go(workers[i].run)
	}
	wait.Wait()
	if err := w.ended(); err != nil {
		names := 0
		for i := range workers {
			names += workers[i].names
		}
		if errors.Is(err, context.DeadlineExceeded) && names > manyNames {
			err = errors.Join(err, errManyNames)
		}
		return fail(err)
	}
	var found []changedPath
	if !w.since.After(top.CTime) {
		found = append(found, changedPath{".", top})
	}
	for i := range workers {
		found = append(found, workers[i].found...)
	}
	slices.SortFunc(found, func(a, b changedPath) int { return diff.ComparePaths(a.path, b.path) })
	return found, nil
}

// A ctimeWalk is one search of a directory tree for paths changed at or after since. Its workers share it,
// and take the directories to read from a queue in it.
type ctimeWalk struct {
	ctx   context.Context
	root  int
	top   vfs.Stat
	since vfs.Timestamp
	skip  func(string) bool

	mu   sync.Mutex
	wake *sync.Cond
	dirs []string // queued directories
	busy int      // workers that may still queue some
	// idle is the number of workers that wait for a directory. A worker queues
	// directories only if one is idle.
	idle atomic.Int32
	// over is set once the context has ended.
	over atomic.Bool
}

// ended returns the error of the context of the search for changed files if it has ended, and nil otherwise.
// All workers then see the end.
func (w *ctimeWalk) ended() error {
	if w.over.Load() {
		return cmp.Or(w.ctx.Err(), context.DeadlineExceeded)
	}
	err := expired(w.ctx)
	if err != nil {
		w.over.Store(true)
	}
	return err
}

// A ctimeWorker is one thread of a search for files by change time, with the paths that it has found.
type ctimeWorker struct {
	*ctimeWalk
	found []changedPath
	names int // looked at
}

// run takes directories from the queue of the search for changed files and reads them, until no worker has
// one left.
func (w *ctimeWorker) run() {
	for {
		path, ok := w.next()
		if !ok {
			return
		}
		if w.ended() != nil {
			continue
		}
		dir, err := vfs.OpenBeneath(w.root, path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			continue // deleted meanwhile, or not readable for this user
		}
		w.walk(dir, path, 0)
		dir.Close()
	}
}

// next takes a directory from the search's queue, and waits while the queue is empty but a worker may still
// add one. It returns false when all workers wait, which ends the search.
func (w *ctimeWalk) next() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	w.idle.Add(1)
	for len(w.dirs) == 0 && w.busy > 0 {
		w.wake.Wait()
	}
	w.idle.Add(-1)
	if len(w.dirs) == 0 {
		w.wake.Broadcast()
		return "", false
	}
	w.busy++
	last := len(w.dirs) - 1
	path := w.dirs[last]
	w.dirs = w.dirs[:last]
	return path, true
}

// share adds the directory path to the queue of the search for changed files, for a worker that waits.
func (w *ctimeWalk) share(path string) {
	w.mu.Lock()
	w.dirs = append(w.dirs, path)
	w.mu.Unlock()
	w.wake.Signal()
}

// maxOpenDirs is how many directories one worker has open at once during a recursive walk. It puts deeper
// ones in the queue, so that the process does not run out of file descriptors.
const maxOpenDirs = 100

// walk reads the directory dir, at path, and collects its entries that changed since the time that the search
// is for. Then it walks the subdirectories itself, or puts them in the search's queue if another worker waits
// or depth, the number of open directories, is at its limit.
func (w *ctimeWorker) walk(dir *os.File, path string, depth int) {
	var sub []string
	// A read error means that the directory is being deleted.
	_ = vfs.EachEntry(int(dir.Fd()), func(name []byte, _ uint64, _ uint8) error {
		if w.names++; w.names%namesBetween == 0 && w.ended() != nil {
			return w.ended()
		}
		st, err := vfs.Lstat(int(dir.Fd()), string(name))
		if err != nil {
			return nil //nolint:nilerr // deleted meanwhile
		}
		late := !w.since.After(st.CTime)
		if !late && !st.IsDir() {
			return nil
		}
		at := joined(path, string(name))
		if st.Mount != w.top.Mount || st.Mount == 0 && st.Dev != w.top.Dev || w.skip(at) {
			return nil
		}
		if late {
			w.found = append(w.found, changedPath{at, st})
		}
		if st.IsDir() {
			sub = append(sub, at)
		}
		return nil
	})
	for _, at := range sub {
		if w.ended() != nil {
			return
		}
		if depth == maxOpenDirs || w.idle.Load() > 0 {
			w.share(at)
			continue
		}
		child, err := vfs.OpenDir(int(dir.Fd()), filepath.Base(at))
		if err != nil {
			continue
		}
		w.walk(child, at, depth+1)
		child.Close()
	}
}

// joined returns the path of name in dir, which is relative to the start of a search and may be ".".
func joined(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
