package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// exportsName is the name of the file beside an evidence log with the sizes of the log at its exports, one a line. Who
// holds one of these bundles can compare a later one with it, also when records were removed in between.
const exportsName = "exports"

// maxExports is the number of sizes of exported bundles, the newest, whose roots remain when records are removed.
const maxExports = 64

// A Pruned says which records of an evidence log a retention rule removes, or has removed.
type Pruned struct {
	Sandbox string `json:"sandbox"`
	Rule    string `json:"rule"`
	// First and Last are the numbers of the first and last of these records; both are 0 if there are none.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Records is how many records they are, and Bytes the size of their lines.
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// Removed is set when they were removed.
	Removed bool `json:"removed"`
}

// checkRemoval returns an error unless this host's key has signed envelope, the statement about removed records.
func (s *Store) checkRemoval(envelope []byte) error {
	key, err := statement.ReadPublic(filepath.Join(s.dir, statement.PublicName))
	if err != nil {
		return err
	}
	st, _, err := statement.Open(envelope, key)
	if err == nil && st.PredicateType != statement.RemovalType {
		err = errors.New("it is a statement of another type")
	}
	return err
}

// tend compresses the closed files of the evidence log l, after one was closed for the event e, and removes those that
// the sandbox's retention rule does not keep.
func (s *Store) tend(l *audit.Log, e events.Event) error {
	if err := l.Compress(); err != nil {
		return err
	}
	rec, err := s.cat.Get(e.Subject)
	switch {
	case errors.Is(err, errs.ErrNotFound) || err == nil && rec.Policy.KeepEvidence == nil:
		return nil // every record stays
	case err != nil:
		return err
	}
	_, err = s.Prune(rec.ID, *rec.Policy.KeepEvidence, true)
	if errors.Is(err, errs.ErrDenied) {
		return nil // the administrator forbids it
	}
	return err
}

// Prune finds the oldest records of the evidence log of the sandbox with this id that the retention rule does not keep:
// whole files of the log, never the first two records, and none after the end statement. With remove it removes them,
// after a signed statement about it is in the log; it first finishes a removal that was interrupted. Errors:
// errs.ErrDenied if the site's policy keeps all records, errs.ErrCorrupt, errs.ErrNotFound.
func (s *Store) Prune(id string, rule catalog.KeepEvidence, remove bool) (*Pruned, error) {
	l := s.Log(id)
	if !l.Exists() {
		return nil, errs.New("removing old records", id, errs.ErrNotFound, "this sandbox keeps no evidence")
	}
	floor := catalog.KeepEvidence{}
	site, err := policy.ReadSite()
	if err != nil {
		return nil, err
	}
	if site != nil && site.Sandbox.KeepEvidence != nil {
		floor = *site.Sandbox.KeepEvidence
	}
	if floor.All {
		return nil, errs.New("removing old records of "+id, site.Path, errs.ErrDenied, "the site's policy keeps all records (keep-evidence)")
	}
	p := &Pruned{Sandbox: id, Rule: rule.String()}
	choose := func(segments []audit.Segment, records []audit.Record) int64 {
		next := oldest(segments, records, rule, floor, time.Now())
		p.note(segments, next)
		return next
	}
	if !remove {
		segments, records, err := l.Segments()
		if err == nil {
			choose(segments, records)
		}
		return p, err
	}
	next, err := l.Prune(audit.Pruning{Choose: choose, Sign: func(lines [][]byte, records []audit.Record, removed *audit.Removed, next int64) (map[string]any, error) {
		return s.signRemoval(l, lines, records, removed, next, p.Rule)
	}})
	if err != nil || next == 0 {
		return p, err
	}
	if p.Removed = true; p.Last != next-1 { // the removal of another call was finished
		p.First, p.Last, p.Records, p.Bytes = audit.Opening, next-1, next-audit.Opening, 0
	}
	return p, s.removeManifests(l)
}

// note stores in p what is removed if the log with these segments keeps the records from number next on; 0 is nothing.
func (p *Pruned) note(segments []audit.Segment, next int64) {
	p.First, p.Last, p.Records, p.Bytes = 0, 0, 0, 0
	if next == 0 {
		return
	}
	p.First, p.Last = audit.Opening, next-1
	for i, s := range segments {
		if s.First < next && !(i == 0 && removedBefore(segments)) {
			p.Records, p.Bytes = p.Records+s.Records, p.Bytes+s.Size
			if i == 0 {
				p.Records -= audit.Opening
			}
		}
	}
	if removedBefore(segments) {
		p.First = segments[1].First
	}
}

// removedBefore reports whether records were removed from the log with these segments before: the first one has only
// those that stay.
func removedBefore(segments []audit.Segment) bool {
	return len(segments) > 1 && segments[0].Records == audit.Opening && segments[1].First > audit.Opening
}

// oldest returns the number of the first record that stays, besides those that always do, in the log with these
// segments and records; 0 if all stay. A segment goes if one bound of rule says so, and if floor, the minimum of the
// administrator, allows it.
func oldest(segments []audit.Segment, records []audit.Record, rule, floor catalog.KeepEvidence, now time.Time) (next int64) {
	end := int64(1) << 53
	for _, r := range records {
		if r.Type == audit.Ended {
			end = r.Seq // it names the records before, and the statement their root
		}
	}
	last := segments[len(segments)-1]
	for i := 0; i+1 < len(segments); i++ {
		if i == 0 && removedBefore(segments) {
			continue
		}
		later, after := int64(0), segments[i+1].First
		for _, s := range segments[i+1:] {
			later += s.Size
		}
		count, age := last.First+last.Records-after, now.Sub(segments[i].Last)
		gone := rule.Records > 0 && count >= rule.Records || rule.For > 0 && age >= rule.For || rule.Size > 0 && later >= rule.Size
		if !gone || rule.All || count < floor.Records || age < floor.For || later < floor.Size || after > end {
			break
		}
		next = after
	}
	return next
}

// signRemoval returns the content of the record that says which records of the evidence log l are removed, with its
// signed statement.
func (s *Store) signRemoval(l *audit.Log, lines [][]byte, records []audit.Record, before *audit.Removed, next int64, rule string) (map[string]any, error) {
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	keep, err := exportsOf(l)
	if err != nil {
		return nil, err
	}
	cosigned, err := cosignaturesOf(l)
	if err != nil {
		return nil, err
	}
	for _, c := range cosigned {
		keep = append(keep, c.Size)
	}
	r, tree, err := bundle.RemovalOf(lines, records, before, next, keep)
	if err != nil {
		return nil, err
	}
	root, err := tree.Root(tree.Size())
	if err != nil {
		return nil, err
	}
	id, digits := records[0].Sandbox, fmt.Sprintf("%x", root[:])
	by := asker()
	line, _, err := key.Sign(statement.Statement{
		Subject:       []statement.Subject{{Name: statement.Origin(id), Digest: map[string]string{"sha256": digits}}},
		PredicateType: statement.RemovalType,
		Predicate: map[string]any{
			"sandbox": id, "log": map[string]any{"size": tree.Size(), "root": digits}, "removed": r,
			"rule": rule, "by": by, "time": time.Now().UTC().Format(time.RFC3339),
		},
	})
	return map[string]any{"first": r.First, "last": r.Last, "rule": rule, "by": by, "statement": string(line)}, err
}

// removeManifests removes the manifests of the evidence log l that no record names any more.
func (s *Store) removeManifests(l *audit.Log) error {
	records, err := recordsOf(l)
	if err != nil {
		return err
	}
	roots := bundle.Roots(records)
	all, err := filepath.Glob(filepath.Join(l.Dir(), manifestPrefix+"*.jsonl"))
	if err != nil {
		return err
	}
	for _, path := range all {
		name := filepath.Base(path)
		root := name[len(manifestPrefix) : len(name)-len(".jsonl")]
		if !slices.Contains(roots, root) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return errs.With("removing old records", path, err)
			}
		}
	}
	return nil
}

// noteExport stores the size of the evidence log l at an export.
func noteExport(l *audit.Log, size int64) error {
	before, err := exportsOf(l)
	if err != nil || slices.Contains(before, size) {
		return err
	}
	f, err := os.OpenFile(filepath.Join(l.Dir(), exportsName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", size)
		err = errors.Join(err, f.Close())
	}
	return errs.With("storing the size of an exported record", l.Dir(), err)
}

// exportsOf returns the sizes that the evidence log l had at its last exports. It skips a line that a killed writer left
// incomplete.
func exportsOf(l *audit.Log) (all []int64, err error) {
	text, err := os.ReadFile(filepath.Join(l.Dir(), exportsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.With("reading the sizes of exported records", l.Dir(), err)
	}
	for line := range bytes.Lines(text) {
		if size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64); err == nil {
			all = append(all, size)
		}
	}
	return all[max(0, len(all)-maxExports):], nil
}
