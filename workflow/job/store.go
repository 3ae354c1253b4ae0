package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Names in the directory DIR/NUMBER of a job:
//
//	job.json   the Job
//	output/    what its command and check wrote, see package race
//	cancel     exists once somebody wants it to end
//
// A process that works on the job locks the directory by flock(2). If the state says that a process does, and
// nobody has the lock, that process was killed.
const (
	recordFile = "job.json"
	outputDir  = "output"
	cancelFile = "cancel"
	// submitting is the start of the name that the directory of a job (submitted command) has until its
	// submission is complete.
	submitting = "new-"
)

// mostEnded is how many ended jobs the state directory stores. Submitting a job removes the oldest beyond
// that.
const mostEnded = 500

// A Store stores the jobs (submitted commands) of a state directory, and the triggers that submit jobs
// automatically. It is safe for concurrent use, by any number of processes.
type Store struct {
	engine *engine.Engine
	dir    string
	events *events.Log
	now    func() time.Time
}

// New returns the store of the jobs, submitted commands with their progress, in the state directory of the
// engine e.
func New(e *engine.Engine) *Store {
	return &Store{engine: e, dir: filepath.Join(e.StateDir(), "jobs"), events: events.New(e.StateDir(), e.Notice, nil), now: time.Now}
}

// announce appends an event about the new state of the job j to the event log of the state directory.
func (s *Store) announce(j *Job) {
	e := events.Event{Type: events.JobChanged, Subject: j.Sandbox, Data: events.Data{Job: j.Number, Name: string(j.State), Reason: j.Why}}
	if j.State == Queued && j.Tries == 0 {
		e.Data.Workspace, e.Data.Command, e.Data.Trigger = j.Workspace, events.Command(leak.Redacted(&j.Policy, j.Command)), j.Trigger
	}
	s.events.Append(e)
}

func (s *Store) path(number int) string { return filepath.Join(s.dir, strconv.Itoa(number)) }

// OutputDir returns the directory with the outputs of the job (submitted command) with this number: 1.out of
// its command, and 1.check of its check.
func (s *Store) OutputDir(number int) string { return filepath.Join(s.path(number), outputDir) }

// Submit stores a new job, which a worker then carries out. When it returns, the job survives a power loss.
// Errors: ErrInvalid for a Spec that cannot be carried out; after an error there is no job.
func (s *Store) Submit(spec Spec) (*Job, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	const op = "submitting a job"
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, errs.With(op, s.dir, err)
	}
	tmp, err := os.MkdirTemp(s.dir, submitting)
	if err != nil {
		return nil, errs.With(op, s.dir, err)
	}
	j := &Job{Spec: spec, State: Queued, Submitted: s.now().UTC()}
	numbers, err := s.numbers()
	if err == nil {
		j.Number = 1
		if n := len(numbers); n > 0 {
			j.Number = numbers[n-1] + 1
		}
		for {
			if err = save(tmp, j); err == nil {
				err = vfs.RenameNew(tmp, s.path(j.Number))
			}
			if !errors.Is(err, fs.ErrExist) {
				break
			}
			j.Number++ // another process took the number
		}
	}
	if err == nil {
		err = vfs.SyncDir(s.dir)
	}
	if err != nil {
		return nil, errors.Join(errs.With(op, s.dir, err), os.RemoveAll(tmp))
	}
	s.announce(j)
	s.forget(numbers)
	return j, nil
}

// forget removes the oldest ended jobs beyond mostEnded, given the numbers of all jobs, and directories older
// than an hour of a Submit that was killed. It ignores errors; the next Submit retries.
func (s *Store) forget(numbers []int) {
	var ended []int
	if len(numbers) > mostEnded {
		for _, n := range numbers {
			if j, err := s.Get(n); err == nil && j.State.Final() {
				ended = append(ended, n)
			}
		}
	}
	for _, n := range ended[:max(0, len(ended)-mostEnded)] {
		_ = os.RemoveAll(s.path(n)) // see above
	}
	left, _ := filepath.Glob(filepath.Join(s.dir, submitting+"*")) // the pattern is good
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(path) // see above
		}
	}
}

// numbers returns the numbers, by which the user names jobs, of all stored jobs, ascending.
func (s *Store) numbers() ([]int, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.With("listing jobs", s.dir, err)
	}
	var all []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// List returns all jobs, the submitted commands, sorted by number. The error is about those that cannot be
// read; the others are returned all the same.
func (s *Store) List() ([]Job, error) {
	numbers, err := s.numbers()
	jobs := make([]Job, 0, len(numbers))
	for _, n := range numbers {
		j, jerr := s.Get(n)
		switch {
		case jerr == nil:
			jobs = append(jobs, *j)
		case !errors.Is(jerr, errs.ErrNotFound): // removed meanwhile
			err = errors.Join(err, jerr)
		}
	}
	return jobs, err
}

// Get returns the job (submitted command) with this number in its last stored state. Errors: ErrNotFound,
// ErrCorrupt.
func (s *Store) Get(number int) (*Job, error) {
	const op = "reading job"
	path := filepath.Join(s.path(number), recordFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(op, strconv.Itoa(number), errs.ErrNotFound, fmt.Sprintf("no job has the number %d", number), "snapfs job ls")
	}
	if err != nil {
		return nil, unreadable(op, number, path, err)
	}
	j := new(Job)
	if err := exactjson.Decode(data, j); err != nil || j.Number != number {
		return nil, &errs.Error{
			Op: op, Path: strconv.Itoa(number), Kind: errs.ErrCorrupt, Err: errors.Join(errors.New("its file does not hold this job"), err),
			Hints: []string{"rm -r " + errs.Quoted(s.path(number)) + "   # forgets this job"},
		}
	}
	return j, nil
}

// unreadable returns err, that of reading the file at path, as an error about the job or trigger with this number. Its
// text has no path of the state directory, because a server sends it to clients that may only read; the hint has.
func unreadable(op string, number int, path string, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return errs.With(op, strconv.Itoa(number), err, "ls -l "+errs.Quoted(path))
}

func save(dir string, j *Job) error {
	data, err := exactjson.EncodeIndent(j, "", " ")
	if err != nil {
		return err
	}
	return catalog.ReplaceFile(filepath.Join(dir, recordFile), append(data, '\n'), true)
}

// A locked is a job, a submitted command, that this process works on, with the lock of the job's directory.
type locked struct {
	*Job
	store *Store
	dir   string
	lock  *os.File
}

// lock locks the job (submitted command) with this number for the operation op, and reads it. Errors: ErrBusy
// if another process works on it; those of Get.
func (s *Store) lock(op string, number int) (*locked, error) {
	if _, err := s.Get(number); err != nil {
		return nil, err
	}
	f, err := os.Open(s.path(number))
	if err != nil {
		return nil, errs.With(op, s.path(number), err)
	}
	err = vfs.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var j *Job
		if j, err = s.Get(number); err == nil {
			return &locked{Job: j, store: s, dir: s.path(number), lock: f}, nil
		}
	}
	vfs.Unlock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errs.New(op, strconv.Itoa(number), errs.ErrBusy, "a worker carries it out now", fmt.Sprintf("snapfs job cancel %d", number))
	}
	return nil, err
}

// become stores the job with a new state and its explanation why, and announces that as an event. After an
// error the stored job is unchanged.
func (l *locked) become(state State, why string) error {
	if l.State, l.Why = state, why; state.Final() {
		l.Ended = time.Now().UTC()
		l.Spec = l.Shown() // nothing needs the values of its variables any more
	}
	err := save(l.dir, l.Job)
	if err == nil {
		l.store.announce(l.Job)
	}
	return err
}

func (l *locked) unlock() { vfs.Unlock(l.lock) }

// cancelled reports whether the user has requested the end of the job through another process.
func (l *locked) cancelled() bool {
	_, err := os.Lstat(filepath.Join(l.dir, cancelFile))
	return err == nil
}
