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
	"github.com/snapfs/snapfs/engine/hostfs"
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
// them. It is safe for concurrent use. It remembers what it replaces in the last sandboxes, at most maxSandboxes.
type Redactor struct {
	Catalog *catalog.Catalog

	mu        sync.Mutex
	sandboxes []*sandboxCache // the last used one is the last
}

// maxSandboxes is how many sandboxes a [Redactor] remembers. Their labelled files take most of the memory, at most some MiB
// for each sandbox.
const maxSandboxes = 16

// A sandboxCache has what a [Redactor] replaces for one sandbox, as read from the files in the sandbox's directory.
type sandboxCache struct {
	dir    string // of the sandbox
	policy cachedFile[policyPart]
	labels cachedFile[*fingerprint.Set]
	prints cachedFile[[]placeholder.Print]
}

// A policyPart is what a policy says about what a [Redactor] replaces.
type policyPart struct {
	policy    *catalog.Policy
	variables []placeholder.Print
}

// Redacts reports whether commands of a sandbox with the policy p may have something in their arguments that a
// [Redactor] replaces.
func Redacts(p *catalog.Policy) bool {
	return p.Data.Labelled() || len(p.Secrets) > 0 || slices.ContainsFunc(p.Env, func(v string) bool { name, _ := secretIn(v); return name != "" })
}

// secretIn returns the name and the value of a variable that a policy gives as NAME=VALUE, if it looks like a secret.
func secretIn(variable string) (name, value string) {
	name, value, given := strings.Cut(variable, "=")
	if !given || !hostfs.SecretVariable(name, value) {
		return "", ""
	}
	return name, value
}

// variablePrints returns prints of the secrets among the variables that the policy p gives as NAME=VALUE.
func variablePrints(p *catalog.Policy) (prints []placeholder.Print) {
	for _, v := range p.Env {
		name, value := secretIn(v)
		prints = append(prints, placeholder.Prints(name, []byte(value))...)
	}
	return prints
}

// Redact returns args, the arguments of a command of the sandbox, and env, its variables as NAME=VALUE. A note replaces
// each argument and each value that has a secret or labelled content, as it is or encoded. If only several arguments
// together have it, notes replace all but the program. Secrets are those of the profile, once a start of the sandbox has
// used them, and the values that --env gives to variables whose names are those of secrets.
//
// Cost: three system calls; with labels some 10 ns for each byte, up to 256 KiB, and once the time to read the
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
// [Redactor.Redact] does, but for the secrets of the profile, which no start has read. If it cannot read the labelled
// files, it returns the name of the program and an ellipsis.
func Redacted(p *catalog.Policy, args []string) []string {
	if !Redacts(p) || len(args) == 0 {
		return args
	}
	s := searcher{prints: variablePrints(p)}
	if p.Data.Labelled() {
		var err error
		if s.labels, err = readLabels(nil, p); err != nil {
			return []string{args[0], "…"}
		}
	}
	return s.redact(args, 1, whole)
}

// whole returns 0: a note replaces the whole text.
func whole(string) int { return 0 }

// searcher returns what recognises the labelled content and the secrets of a sandbox.
func (r *Redactor) searcher(sandbox string) (s searcher, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.of(r.Catalog.Path(sandbox))
	get := func() (policyPart, error) {
		rec, err := r.Catalog.Get(sandbox)
		if err != nil {
			return policyPart{}, err
		}
		return policyPart{&rec.Policy, variablePrints(&rec.Policy)}, nil
	}
	part, err := k.policy.read(filepath.Join(k.dir, catalog.RecordFile), get)
	if err == nil && part.policy == nil {
		part, err = get() // its error says why there is no record
	}
	if err != nil {
		return s, err
	}
	s.labels, err = k.labels.read(filepath.Join(k.dir, labelsFile), func() (*fingerprint.Set, error) { return loadLabels(k.dir) })
	if err == nil && s.labels == nil { // a run, which reads them at its start
		s.labels, err = ReadLabels(k.dir, part.policy)
	}
	if err == nil {
		s.prints, err = k.prints.read(filepath.Join(k.dir, printsFile), func() ([]placeholder.Print, error) { return load(k.dir) })
	}
	s.prints = slices.Concat(s.prints, part.variables)
	return s, err
}

// of returns the cache of the sandbox in the directory dir. It forgets that of the sandbox that was used longest ago if
// there are too many.
func (r *Redactor) of(dir string) *sandboxCache {
	k := &sandboxCache{dir: dir}
	if i := slices.IndexFunc(r.sandboxes, func(k *sandboxCache) bool { return k.dir == dir }); i >= 0 {
		k = r.sandboxes[i]
		r.sandboxes = slices.Delete(r.sandboxes, i, i+1)
	} else if len(r.sandboxes) >= maxSandboxes {
		r.sandboxes = slices.Delete(r.sandboxes, 0, 1)
	}
	r.sandboxes = append(r.sandboxes, k)
	return k
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
