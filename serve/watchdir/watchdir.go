// Package watchdir reports the changes in a directory, one line of JSON for each. It runs as a process in a
// sandbox, so that it sees the same files as the sandbox's commands, and its costs count towards the
// sandbox's limits.
package watchdir

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/snapfs/snapfs/errs"
)

// The kinds of changes in a watched directory, as the field Kind of an [Event]. Ready is no change: it says
// that the watch has begun.
const (
	Ready  = "ready" // the first line: the watch has begun
	Create = "create"
	Write  = "write"
	Remove = "remove"
	Rename = "rename" // away from this name; the new one, in a watched directory, gets a Create
	Chmod  = "chmod"
)

// An Event is a change in a watched directory, as a line of JSON. Name is relative to the directory.
type Event struct {
	Kind string `json:"kind"`
	Name []byte `json:"name,omitempty"` // any bytes
}

// maxDirectories is the largest number of directories that a recursive watch covers. With more the watch
// fails, with ErrNoSpace.
const maxDirectories = 10_000

// partial begins the names of unfinished files that package serve/files writes before it moves them into
// place. They are not reported.
const partial = ".snapfs-partial-"

// Serve watches the directory dir, with recursive also everything in it, and writes the events to out until
// writing fails. Errors: ErrNotFound; ErrInvalid if dir is no directory; ErrNoSpace for too many directories
// or missed events.
func Serve(dir string, recursive bool, out io.Writer) error {
	const op = "watching"
	info, err := os.Stat(dir)
	if err != nil {
		return errs.With(op, dir, err)
	}
	if !info.IsDir() {
		return errs.New(op, dir, errs.ErrInvalid, "it is no directory")
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return errs.With(op, dir, err)
	}
	defer w.Close() //nolint:errcheck // nothing is written to it
	s := &server{dir: dir, recursive: recursive, watcher: w, out: json.NewEncoder(out), known: map[string]bool{}}
	if err := s.add(dir, false); err != nil {
		return errs.With(op, dir, err)
	}
	if err := s.send(Ready, ""); err != nil {
		return err
	}
	for {
		select {
		case e := <-w.Events:
			if err := s.handle(e); err != nil {
				return errs.With(op, dir, err)
			}
		case err := <-w.Errors:
			return errs.With(op, dir, err)
		}
	}
}

type server struct {
	dir       string
	recursive bool
	watcher   *fsnotify.Watcher
	out       *json.Encoder
	known     map[string]bool // the paths that exist
	watched   int
	replacing bool // a file is being moved into place
}

func (s *server) send(kind, path string) error {
	var name []byte
	if path != "" {
		rel, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		name = []byte(rel)
	}
	return s.out.Encode(Event{kind, name})
}

// add watches the directory dir. If fresh is set, dir was made after the watch of its parent began, and add
// also reports its entries, which may have been made before dir was watched.
func (s *server) add(dir string, fresh bool) error {
	if s.watched++; s.watched > maxDirectories {
		return errs.New("watching", dir, errs.ErrNoSpace, "there are too many directories")
	}
	if err := s.watcher.Add(dir); err != nil {
		if fresh && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fsnotify.ErrClosed)) {
			return nil // it was removed meanwhile
		}
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !fresh {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if fresh && !s.known[path] {
			if err := s.send(Create, path); err != nil {
				return err
			}
		}
		s.known[path] = true
		if s.recursive && e.IsDir() {
			if err := s.add(path, fresh); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) handle(e fsnotify.Event) error {
	if e.Name == s.dir {
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			return errs.New("watching", s.dir, errs.ErrNotFound, "the directory was removed")
		}
		return nil
	}
	if strings.HasPrefix(filepath.Base(e.Name), partial) {
		s.replacing = s.replacing || e.Has(fsnotify.Rename)
		return nil
	}
	for _, m := range []struct {
		op   fsnotify.Op
		kind string
	}{{fsnotify.Create, Create}, {fsnotify.Write, Write}, {fsnotify.Remove, Remove}, {fsnotify.Rename, Rename}, {fsnotify.Chmod, Chmod}} {
		if !e.Has(m.op) {
			continue
		}
		if err := s.report(m.kind, e.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) report(kind, path string) error {
	switch kind {
	case Remove, Rename:
		if !s.known[path] && s.recursive {
			return nil // a directory reports its own end, too
		}
		delete(s.known, path)
		return s.send(kind, path)
	case Create:
		replaced := s.replacing
		s.replacing = false
		if s.known[path] && !replaced {
			return nil // add has reported it
		}
		if !s.known[path] {
			if err := s.send(Create, path); err != nil {
				return err
			}
		}
		s.known[path] = true
		if replaced {
			return s.send(Write, path)
		}
		if info, err := os.Lstat(path); err == nil && info.IsDir() && s.recursive {
			return s.add(path, true)
		}
		return nil
	}
	return s.send(kind, path)
}
