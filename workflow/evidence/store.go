package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// dirName is the name of the directory in the state directory that contains the evidence of all sandboxes,
// the signed logs of everything done with them.
const dirName = "evidence"

// Names of the files in the directory with a sandbox's evidence, besides the log: the signed statements about
// its start and its end, and the manifests (lists of changed files).
const (
	startName      = "start.dsse.json"
	endName        = "end.dsse.json"
	manifestPrefix = "manifest-"
)

// A Store writes the evidence logs of the sandboxes of one state directory. The engine passes it the events,
// as its events.Witness.
type Store struct {
	cat *catalog.Catalog
	dir string

	mu     sync.Mutex
	failed error // of a record that was written, and could not be put on stable storage
	// logs are the logs of the sandboxes with events so far, by id. Each knows up to where it was verified.
	logs map[string]*audit.Log
}

// Of returns the store of the sandboxes' evidence, signed logs of what was done in them, in the state
// directory of cat.
func Of(cat *catalog.Catalog) *Store {
	return &Store{cat: cat, dir: Dir(cat.Dir()), logs: map[string]*audit.Log{}}
}

// Witness returns the store of evidence, signed logs of everything done with sandboxes, for the catalogue
// cat, in the form that engine.Config needs.
func Witness(cat *catalog.Catalog) events.Witness { return Of(cat) }

// Dir returns the directory in the state directory state that contains the evidence of all sandboxes, the
// signed logs of everything done with them.
func Dir(state string) string { return filepath.Join(state, dirName) }

// Key returns the key with which this host signs evidence, the logs of everything done with sandboxes. It
// creates the key if there is none.
func (s *Store) Key() (*statement.Key, error) { return statement.HostKey(s.dir) }

func (s *Store) at(id string) *audit.Log { return audit.At(filepath.Join(s.dir, id), id) }

// Log returns the log with the evidence about the sandbox with this id. The log need not exist.
func (s *Store) Log(id string) *audit.Log {
	return s.at(id).StorePosition(func(text []byte) ([]byte, error) {
		return statement.MAC(s.dir, text)
	}).SignedBy(s.checkRemoval)
}

// Before writes an entry about the event e to the evidence log of its sandbox, before the operation. An error
// means that the operation must not start.
func (s *Store) Before(e events.Event) error {
	if e.Type == events.SandboxCreated {
		if !e.Data.Evidence {
			return nil
		}
		return s.begin(e)
	}
	l, err := s.logOf(e)
	if l == nil || err != nil {
		return err
	}
	if err := l.Room(); err != nil {
		return s.present(e, err)
	}
	if l.Rotated() {
		if err := s.tend(l, e); err != nil {
			return err
		}
	}
	data, err := dataOf(l, e)
	if err != nil {
		return s.present(e, err)
	}
	if err := s.lost(); err != nil {
		return err
	}
	if e.Type != events.CommandStarted {
		data["by"] = asker()
	}
	if e.Type == events.CommandStarted {
		return s.present(e, l.AppendSoon(e.Type, data, s.noteSync))
	}
	return l.Append(e.Type, data, true)
}

// noteSync remembers err: an entry of an evidence log could not be put on stable storage. From then on
// [Store.Before] refuses every operation on the sandbox.
func (s *Store) noteSync(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// lost returns the error that noteSync remembers if syncing an evidence log failed, so that an entry may be
// lost; else nil.
func (s *Store) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// lasting are the types of events whose entry in the evidence log is on stable storage when [Store.After]
// returns.
var lasting = map[string]bool{
	events.ChangesPromoted: true, events.PromotionUndone: true, events.PromotionRedone: true,
	events.SandboxRemoved: true, events.SandboxRolledBack: true,
}

// unbounded has the types of events that the programs of a sandbox cause as often as they like: by trying what they may
// not, or by reading files of which the first read is recorded.
var unbounded = map[string]bool{events.AccessRefused: true, events.NetworkRefused: true, events.FileRead: true}

// After writes an entry about the event e to the evidence log of its sandbox, after the operation, unless
// Before has written it. Errors: also errs.ErrNoSpace for a refusal, if only the part of the log is left that is
// reserved for operations.
func (s *Store) After(e events.Event) error {
	if e.Type == events.SandboxCreated || e.Type == events.CommandStarted { // Before has recorded it
		return nil
	}
	l, err := s.logOf(e)
	if l == nil || err != nil {
		return err
	}
	if unbounded[e.Type] {
		if err := l.RoomForRefusal(); err != nil {
			return err
		}
	}
	data, err := dataOf(l, e)
	if err != nil {
		return err
	}
	if e.Type == events.CommandEnded {
		return s.present(e, l.AppendSoon(e.Type, data, s.noteSync))
	}
	if e.Type == events.SandboxRemoved {
		s.forget(e.SandboxID)
	}
	return l.Append(e.Type, data, lasting[e.Type])
}

// Redact returns the arguments of a command for the event stream, which others may read: only the name of the
// program if the sandbox keeps evidence, else all of them.
func (s *Store) Redact(sandbox string, args []string) []string {
	if len(args) < 2 || !s.recorded(sandbox) && !s.at(sandbox).Exists() {
		return args
	}
	return []string{args[0], "…"}
}

// logOf returns the evidence log of the sandbox that the event e is about, or nil if the sandbox keeps no
// evidence.
func (s *Store) logOf(e events.Event) (*audit.Log, error) {
	id := e.SandboxID
	if id == "" && e.Subject != "" {
		rec, err := s.cat.Get(e.Subject)
		switch {
		case errors.Is(err, errs.ErrNotFound):
			return nil, nil //nolint:nilnil // the sandbox is gone; its promotions stay
		case err != nil:
			return nil, err
		}
		id = rec.ID
	}
	if id == "" {
		return nil, nil //nolint:nilnil // the event is about no sandbox
	}
	if ofCommand(e) && s.recorded(id) {
		return s.opened(id), nil // if it is missing, adding the record fails, see present
	}
	if !s.at(id).Exists() {
		return nil, s.missing(e, id) // if nil, it keeps no evidence
	}
	return s.opened(id), nil
}

// ofCommand reports whether e is the start or the end of a command, of which a job can have many.
func ofCommand(e events.Event) bool {
	return e.SandboxID != "" && (e.Type == events.CommandStarted || e.Type == events.CommandEnded)
}

// present replaces err, from adding a record about the event e to an evidence log, by the error that logOf would have
// returned if the log is missing. logOf does not look for the log of each command.
func (s *Store) present(e events.Event, err error) error {
	if err == nil || !ofCommand(e) || s.at(e.SandboxID).Exists() {
		return err
	}
	s.forget(e.SandboxID)
	return s.missing(e, e.SandboxID)
}

// recorded reports whether this process has added a record to the evidence log of the sandbox with this id. The log may
// have been deleted since.
func (s *Store) recorded(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[id] != nil
}

// missing returns an error if the sandbox of the event e, with this id, keeps evidence by its policy. Its log is
// missing then. The removal of a sandbox is no error: it is the way out.
func (s *Store) missing(e events.Event, id string) error {
	if e.Type == events.SandboxRemoved || e.Subject == "" {
		return nil
	}
	rec, err := s.cat.Get(e.Subject)
	switch {
	case errors.Is(err, errs.ErrNotFound):
		return nil
	case err != nil:
		return err
	case rec.ID != id || !rec.Policy.Evidence:
		return nil
	}
	return noLog(rec.Name, s.at(id))
}

// noLog returns the error for the sandbox called name, which keeps evidence by its policy although its log l is missing.
func noLog(name string, l *audit.Log) error {
	return errs.New("recording an act on "+name, filepath.Join(l.Dir(), audit.LogName), errs.ErrCorrupt,
		"the sandbox keeps evidence, but its log is missing, so that nothing can be recorded; put it back from a copy, or go on in a fork",
		"snapfs fork "+name+"   # the fork begins a record of its own", "snapfs rm "+name)
}

// opened returns the evidence log of the sandbox with this id, the same for each event of the sandbox, so
// that this process verifies each part of the log once.
func (s *Store) opened(id string) *audit.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[id] == nil {
		s.logs[id] = s.Log(id)
	}
	return s.logs[id]
}

// forget makes the next event of the sandbox with this id verify its evidence log from the stored position.
func (s *Store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, id)
}

// Find returns the id of the sandbox with this name or id that has evidence: an existing sandbox, or the
// newest that was removed. Errors: errs.ErrNotFound; errs.ErrCorrupt if its log is missing.
func (s *Store) Find(name string) (string, error) {
	if rec, err := s.cat.Get(name); err == nil {
		switch l := s.Log(rec.ID); {
		case l.Exists():
			return rec.ID, nil
		case rec.Policy.Evidence:
			return "", noLog(name, l)
		}
	}
	all, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errs.With("looking for the evidence of", name, err)
	}
	var found, newest string
	for _, entry := range all {
		id := entry.Name()
		if !entry.IsDir() {
			continue
		}
		if id == name {
			return id, nil
		}
		if last, made := lastName(s.Log(id)); last == name && made > newest {
			found, newest = id, made
		}
	}
	if found == "" {
		return "", errs.New("looking for the evidence of "+name, "", errs.ErrNotFound, "no sandbox of this name keeps or has left evidence",
			"snapfs ls", "snapfs new --evidence "+name)
	}
	return found, nil
}

// sandboxEvent is in each line of an evidence log that names the sandbox, and in few others.
var sandboxEvent = []byte(`"type":"snapfs.sandbox.`)

// lastName returns the last name that a sandbox had by its evidence log, and as made the time of the first
// entry. Both are "" for a log that cannot be read.
func lastName(l *audit.Log) (name, made string) {
	lines, _, err := l.Lines()
	if err != nil {
		return "", ""
	}
	for i, line := range lines {
		if i > 0 && !bytes.Contains(line, sandboxEvent) {
			continue // most lines, of which parsing takes long
		}
		var r audit.Record
		if json.Unmarshal(line, &r) != nil {
			break
		}
		if to, ok := r.Data["name"].(string); ok && (r.Type == events.SandboxCreated || r.Type == events.SandboxRenamed) {
			name = to
		}
		if made == "" {
			made = r.Time
		}
	}
	return name, made
}
