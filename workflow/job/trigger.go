package job

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Trigger submits a job whenever its condition is met: a schedule, changed files, or a signed request. It
// has one of Every, Changed and Webhook.
type Trigger struct {
	// Number names the trigger, from 1.
	Number int `json:"trigger"`
	Spec
	// Within is the time from the submission of each job to its deadline; 0 for none.
	Within time.Duration `json:"within_ns,omitempty"`
	// Every is the time between two jobs.
	Every time.Duration `json:"every_ns,omitempty"`
	// Changed is a pattern of files of the workspace, a change of which is the condition.
	Changed string `json:"when_changed,omitempty"`
	// Webhook is set if a signed request is the condition; see [Store.Hook].
	Webhook bool `json:"webhook,omitempty"`
	// Next is when Every is due.
	Next time.Time `json:"next,omitzero"`
	// Last is the number of the newest job; 0 if there is none.
	Last int `json:"last,omitempty"`
}

// A storedTrigger is the JSON content of the file of a trigger, which submits jobs automatically: the trigger
// as the user defined it, with internal state such as the key of a webhook and its used requests.
type storedTrigger struct {
	Trigger
	// Seen identifies the state of the files of Changed for which the newest job was submitted.
	Seen string `json:"seen,omitempty"`
	// Secret is the key of a webhook, and Used its requests that are not too old to be sent again.
	Secret string `json:"secret,omitempty"`
	Used   []used `json:"used,omitempty"`
}

// A used is a request that a webhook has accepted, by its signature, with the time from which on it is too
// old to be repeated. snapfs stores it to recognise a repetition.
type used struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"`
}

const (
	triggersDir = "triggers"
	// shortestEvery is the shortest time between two jobs that the schedule of a trigger, which submits jobs
	// automatically, may have. A shorter one is ErrInvalid.
	shortestEvery = time.Second
	mostTriggers  = 1000
)

func (s *Store) triggerPath(number int) string {
	return filepath.Join(s.dir, triggersDir, strconv.Itoa(number)+".json")
}

// withTriggers calls do under a lock, so that no other process changes a trigger (which submits jobs
// automatically) meanwhile. op is the operation for errors.
func (s *Store) withTriggers(op string, do func() error) error {
	dir := filepath.Join(s.dir, triggersDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.With(op, dir, err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return errs.With(op, dir, err)
	}
	if err := vfs.Flock(f, unix.LOCK_EX); err != nil {
		return errs.With(op, dir, errors.Join(err, f.Close()))
	}
	defer vfs.Unlock(f)
	return do()
}

// AddTrigger stores a new trigger, which submits jobs automatically, and returns it with its number. secret
// is the key of a webhook, else "". For a trigger on files, their present state is the one that later states
// are compared with; ctx ends that search. When it returns, the trigger survives a power loss. Errors: ErrInvalid.
func (s *Store) AddTrigger(ctx context.Context, t Trigger) (made *Trigger, secret string, err error) {
	const op = "storing a trigger"
	if err := t.check(); err != nil {
		return nil, "", err
	}
	st := storedTrigger{Trigger: t}
	now := s.now()
	switch {
	case t.Every > 0:
		st.Next = now.Add(t.Every).UTC()
	case t.Changed != "":
		if st.Seen, _, err = stateOf(ctx, t.Workspace, t.Changed, mostSearched); err != nil {
			return nil, "", errs.Wrap(op, t.Workspace, err)
		}
	default:
		st.Secret = rand.Text() + rand.Text() // 256 bits
	}
	err = s.withTriggers(op, func() error {
		numbers, err := s.triggerNumbers()
		if err != nil {
			return err
		}
		if len(numbers) >= mostTriggers {
			return errs.New(op, "", errs.ErrNoSpace, "there are too many triggers", "snapfs job triggers")
		}
		if n := len(numbers); n > 0 {
			st.Number = numbers[n-1]
		}
		jobs, _ := s.List() // one that cannot be read is nobody's
		for _, j := range jobs {
			st.Number = max(st.Number, j.Trigger) // the jobs of a removed trigger are not those of a new one
		}
		st.Number++
		if err := s.saveTrigger(&st); err != nil {
			return err
		}
		s.announceTrigger(events.TriggerCreated, &st.Trigger)
		return nil
	})
	return &st.Trigger, st.Secret, err
}

// announceTrigger appends an event of this kind, such as its removal, about a trigger (which submits jobs
// automatically) to the event log of the state directory.
func (s *Store) announceTrigger(kind string, t *Trigger) {
	d := events.Data{Trigger: t.Number, Workspace: t.Workspace, Command: events.Command(leak.Redacted(&t.Policy, t.Command))}
	switch {
	case t.Every > 0:
		d.Name = "schedule"
	case t.Changed != "":
		d.Name = "files"
	case t.Webhook:
		d.Name = "webhook"
	}
	s.events.Append(events.Event{Type: kind, Data: d})
}

// check returns ErrInvalid if a field of the trigger, which is to submit jobs automatically, is wrong: for
// example, if it has two conditions.
func (t *Trigger) check() error {
	const op = "storing a trigger"
	if err := t.Spec.check(); err != nil {
		return err
	}
	ways := 0
	for _, set := range []bool{t.Every != 0, t.Changed != "", t.Webhook} {
		if set {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errs.New(op, "", errs.ErrInvalid, "a trigger has one condition: a schedule, files that change, or a webhook")
	case t.Every != 0 && t.Every < shortestEvery:
		return errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("the shortest time between two jobs is %v", shortestEvery))
	case t.Within < 0:
		return errs.New(op, "", errs.ErrInvalid, "the time until the deadline is negative")
	case t.Changed != "" && filepath.IsAbs(t.Changed) && !strings.HasPrefix(filepath.Clean(t.Changed), t.Workspace+"/"):
		return errs.New(op, t.Changed, errs.ErrInvalid, "the pattern is outside the workspace")
	}
	return nil
}

func (s *Store) saveTrigger(t *storedTrigger) error {
	data, err := exactjson.EncodeIndent(t, "", " ")
	if err != nil {
		return err
	}
	return catalog.ReplaceFile(s.triggerPath(t.Number), append(data, '\n'), true)
}

func (s *Store) triggerNumbers() (all []int, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, triggersDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if n, err := strconv.Atoi(name); err == nil && n > 0 {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all, err
}

// readTrigger returns the trigger with this number, which submits jobs at set times or on events, from its
// file. Errors: ErrNotFound, ErrCorrupt.
func (s *Store) readTrigger(number int) (*storedTrigger, error) {
	const op = "reading trigger"
	path := s.triggerPath(number)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(op, strconv.Itoa(number), errs.ErrNotFound, fmt.Sprintf("no trigger has the number %d", number), "snapfs job triggers")
	}
	if err != nil {
		return nil, unreadable(op, number, path, err)
	}
	t := &storedTrigger{}
	if err := exactjson.Decode(data, t); err != nil || t.Number != number {
		return nil, &errs.Error{Op: op, Path: strconv.Itoa(number), Kind: errs.ErrCorrupt, Err: errors.Join(errors.New("its file does not hold this trigger"), err), Hints: []string{"rm " + errs.Quoted(path) + "   # forgets this trigger"}}
	}
	return t, nil
}

// Triggers returns all triggers, which submit jobs at set times or on events, sorted by number. The error is
// about those that cannot be read; the others are returned all the same.
func (s *Store) Triggers() ([]Trigger, error) {
	numbers, err := s.triggerNumbers()
	list := []Trigger{}
	for _, n := range numbers {
		t, terr := s.readTrigger(n)
		switch {
		case terr == nil:
			list = append(list, t.Trigger)
		case !errors.Is(terr, errs.ErrNotFound): // removed meanwhile
			err = errors.Join(err, terr)
		}
	}
	return list, err
}

// RemoveTrigger removes the trigger with this number, so that it submits no more jobs. Jobs that it submitted
// stay. may, unless nil, can refuse the removal by an error; it gets a trigger that cannot be read with its number alone.
// Errors: ErrNotFound; that of may.
func (s *Store) RemoveTrigger(number int, may func(*Trigger) error) error {
	const op = "removing trigger"
	return s.withTriggers(op, func() error {
		t, err := s.readTrigger(number)
		if errors.Is(err, errs.ErrCorrupt) {
			t, err = &storedTrigger{Trigger: Trigger{Number: number}}, nil
		}
		if err == nil && may != nil {
			err = may(&t.Trigger)
		}
		if err != nil {
			return err
		}
		if err := os.Remove(s.triggerPath(number)); err != nil {
			return errs.With(op, "", err)
		}
		s.announceTrigger(events.TriggerRemoved, &t.Trigger)
		return nil
	})
}

// fire submits the job of the trigger with this number for one occurrence of its condition, such as a time of
// its schedule, named id. It stores the trigger as update changes it. If a killed process has submitted that
// job already, it is not submitted again: jobs contain the id.
func (s *Store) fire(number int, id string, update func(*storedTrigger) error) (j *Job, err error) {
	err = s.withTriggers("submitting the job of trigger", func() error {
		t, err := s.readTrigger(number)
		if err != nil {
			return err
		}
		if err := update(t); err != nil {
			return err
		}
		if j, err = s.firedAs(number, id); err != nil {
			return err
		}
		if j == nil {
			spec := t.Spec
			spec.Trigger, spec.Occurrence = number, id
			if t.Within > 0 {
				spec.Deadline = s.now().Add(t.Within).UTC()
			}
			if j, err = s.Submit(spec); err != nil {
				return err
			}
		}
		t.Last = j.Number
		return s.saveTrigger(t)
	})
	return j, err
}

// firedAs returns the job that the trigger with this number submitted for the occurrence id of its condition,
// such as one time of its schedule; nil if there is none.
func (s *Store) firedAs(number int, id string) (*Job, error) {
	jobs, err := s.List()
	for i := range slices.Backward(jobs) {
		if jobs[i].Trigger == number && jobs[i].Occurrence == id {
			return &jobs[i], nil
		}
	}
	return nil, err
}

// idle reports whether the newest job of the trigger t has neither to begin nor runs, so that the trigger may
// submit another one.
func (s *Store) idle(t *storedTrigger) bool {
	if t.Last == 0 {
		return true
	}
	j, err := s.Get(t.Last)
	return err != nil || j.State.Final() || j.State == Waiting // a removed one is over
}
