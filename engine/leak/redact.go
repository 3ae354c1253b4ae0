package leak

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/fingerprint"
	"github.com/snapfs/snapfs/network/placeholder"
)

// maxRecorded is how many bytes of the arguments of one command snapfs searches before it records them, and likewise of
// the variables. The search takes some milliseconds. An argument beyond that is not recorded.
const maxRecorded = 256 << 10

// The notes that replace an argument in a record. That of a secret goes on with the name of the secret.
const (
	shownLabelled   = "[labelled "
	shownSecret     = "[secret "
	shownUnsearched = "[too long to be searched for labelled content]"
)

// A Redactor replaces labelled content and secrets in the arguments and variables of commands, before snapfs records
// them. It is safe for concurrent use. It remembers the fingerprints of the sandbox of the last call.
type Redactor struct {
	Catalog *catalog.Catalog

	mu     sync.Mutex
	dir    string // of that sandbox
	none   bool   // its policy has no labels
	labels cachedFile[*fingerprint.Set]
	prints cachedFile[[]placeholder.Print]
}

// Redacts reports whether commands of a sandbox with the policy p may have something in their arguments that a
// [Redactor] replaces.
func Redacts(p *catalog.Policy) bool { return p.Data.Labelled() || len(p.Secrets) > 0 }

// Redact returns args, the arguments of a command of the sandbox, and env, its variables as NAME=VALUE. A note replaces
// each argument and each value that has a secret or labelled content, as it is or encoded. If only several arguments
// together have it, notes replace all but the program. Redact does not know a secret before a start of the sandbox has
// used it.
//
// Cost: two system calls; with labels some 10 ns for each byte, up to 256 KiB, and once the time to read the
// fingerprints. Errors: those of [ReadLabels].
func (r *Redactor) Redact(sandbox string, args, env []string) (shown, variables []string, err error) {
	s, err := r.searcher(sandbox)
	if err != nil || s.labels.Empty() && len(s.prints) == 0 {
		return args, env, err
	}
	value := func(text string) int { return strings.IndexByte(text, '=') + 1 }
	return s.redact(args, 1, whole), s.redact(env, 0, value), nil
}

// Redacted returns args, the arguments of a command for a sandbox with the policy p that does not exist yet, as
// [Redactor.Redact] does. Without labels it returns args. If it cannot read the labelled files, it returns the name of
// the program and an ellipsis.
func Redacted(p *catalog.Policy, args []string) []string {
	if !p.Data.Labelled() || len(args) == 0 {
		return args
	}
	labels, err := readLabels(nil, p)
	if err != nil {
		return []string{args[0], "…"}
	}
	return (&searcher{labels: labels}).redact(args, 1, whole)
}

// whole returns 0: a note replaces the whole text.
func whole(string) int { return 0 }

// searcher returns what recognises the labelled content and the secrets of a sandbox.
func (r *Redactor) searcher(sandbox string) (s searcher, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dir := r.Catalog.Path(sandbox); dir != r.dir {
		r.dir, r.none, r.labels, r.prints = dir, false, cachedFile[*fingerprint.Set]{}, cachedFile[[]placeholder.Print]{}
	}
	s.labels, err = r.labels.read(filepath.Join(r.dir, labelsFile), func() (*fingerprint.Set, error) { return loadLabels(r.dir) })
	if err == nil && s.labels == nil && !r.none { // a run, which reads them at its start
		s.labels, err = r.first(sandbox)
	}
	if err == nil {
		s.prints, err = r.prints.read(filepath.Join(r.dir, printsFile), func() ([]placeholder.Print, error) { return load(r.dir) })
	}
	return s, err
}

// first reads the labelled files of a sandbox for which nothing has read them yet, and stores their fingerprints.
func (r *Redactor) first(sandbox string) (*fingerprint.Set, error) {
	rec, err := r.Catalog.Get(sandbox)
	if err != nil {
		return nil, err
	}
	r.none = !rec.Policy.Data.Labelled()
	return ReadLabels(r.dir, &rec.Policy)
}

// A cachedFile is the content of a file, with the attributes of the file by which a later version is recognised.
type cachedFile[T any] struct {
	info  fs.FileInfo // nil: not read
	value T
}

// read returns the content of the file at path. It calls load if the file has changed since the last call. Without the
// file it returns the zero value.
func (s *cachedFile[T]) read(path string, load func() (T, error)) (T, error) {
	var none T
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		*s = cachedFile[T]{}
		return none, nil
	}
	if err != nil {
		return none, err
	}
	if s.info != nil && os.SameFile(s.info, info) && s.info.Size() == info.Size() && s.info.ModTime().Equal(info.ModTime()) {
		return s.value, nil
	}
	value, err := load()
	if err == nil {
		s.info, s.value = info, value
	}
	return value, err
}

// A searcher recognises the labelled content and the secrets of one sandbox.
type searcher struct {
	labels *fingerprint.Set
	prints []placeholder.Print
}

// redact returns texts with notes in place of the parts that have secrets or labelled content. If only several texts
// together have it, the first keep of them stay. from returns the index in a text at which the part begins that a note
// may replace.
func (s *searcher) redact(texts []string, keep int, from func(string) int) []string {
	shown, left := slices.Clone(texts), maxRecorded
	for i, text := range shown {
		if len(text) < left {
			left -= len(text) + 1
		} else {
			shown[i] = text[:min(from(text), maxRecorded/1024)] + shownUnsearched
		}
	}
	what, all := s.find(strings.Join(shown, " "))
	if what == "" {
		return shown
	}
	var single []fingerprint.Hit // in one text by itself
	alone := false               // a secret is in one, or one cannot be searched
	for i, text := range shown {
		if note, hits := s.find(text); note != "" {
			shown[i] = text[:from(text)] + note
			single, alone = append(single, hits...), alone || len(hits) == 0
		}
	}
	if len(fingerprint.Without(all, single)) > 0 || len(all) == 0 && !alone { // several have it together
		for i := keep; i < len(shown); i++ {
			shown[i] = shown[i][:from(shown[i])] + what
		}
	}
	return shown
}

// find returns the note for a text with labelled content or a secret, and the labelled content; it returns "" for any
// other text.
func (s *searcher) find(text string) (note string, hits []fingerprint.Hit) {
	if name := placeholder.SecretIn([]byte(text), s.prints); name != "" {
		return shownSecret + name + "]", nil
	}
	hits, err := s.labels.Find([]byte(text))
	switch {
	case len(hits) > 0:
		return shownLabelled + hits[0].Source.Kind + "]", hits
	case err != nil:
		return shownUnsearched, nil
	}
	return "", nil
}
