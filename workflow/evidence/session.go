package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// RecordChanges adds the changed files of a sandbox to its evidence: it stores their list, the manifest,
// beside the log, and the root hash of the manifest in the log, unless the last record has the same root. For
// a sandbox that keeps no evidence it does nothing. The engine calls it before each promotion.
func RecordChanges(ctx context.Context, e *engine.Engine, rec *catalog.Record) error {
	if !rec.Policy.Evidence {
		return nil
	}
	l := Of(e.Catalog()).Log(rec.ID)
	if !l.Exists() {
		return noLog(rec.Name, l)
	}
	lines, err := manifest(ctx, e, rec)
	if err != nil {
		return err
	}
	tree, err := audit.TreeOf(lines)
	if err != nil {
		return err
	}
	hash, err := tree.Root(tree.Size())
	if err != nil {
		return err
	}
	root := fmt.Sprintf("%x", hash[:])
	if last, err := l.Last(); err != nil || last.Type == audit.DiffRecorded && last.Data["root"] == root {
		return err
	}
	var text strings.Builder
	for _, line := range lines {
		text.Write(line)
		text.WriteByte('\n')
	}
	if err := catalog.ReplaceFile(filepath.Join(l.Dir(), manifestPrefix+root+".jsonl"), []byte(text.String()), true); err != nil {
		return err
	}
	return l.Append(audit.DiffRecorded, map[string]any{"root": root, "entries": tree.Size()}, true)
}

// End closes the evidence log of a sandbox with the signed end statement, unless it has one. It records the
// changed files first, unless that was done since the last command. For a sandbox without evidence it does
// nothing.
func End(ctx context.Context, e *engine.Engine, rec *catalog.Record) error {
	s := Of(e.Catalog())
	return s.endOf(ctx, e, rec, s.Log(rec.ID))
}

// EndAndExport does as [End] and then as [Store.Export], for a sandbox with evidence. It verifies the records once.
func EndAndExport(ctx context.Context, e *engine.Engine, rec *catalog.Record) (*Exported, error) {
	s := Of(e.Catalog())
	l := s.Log(rec.ID)
	if err := s.endOf(ctx, e, rec, l); err != nil {
		return nil, err
	}
	return s.export(l, rec.ID)
}

// endOf does as [End] for the sandbox's evidence log l.
func (s *Store) endOf(ctx context.Context, e *engine.Engine, rec *catalog.Record, l *audit.Log) error {
	if !rec.Policy.Evidence {
		return nil
	}
	if !l.Exists() {
		return errs.New("signing the end", filepath.Join(l.Dir(), audit.LogName), errs.ErrCorrupt, "the log is missing, and with it the record of all acts")
	}
	lines, _, err := l.Lines()
	if err != nil {
		return err
	}
	recorded := false
	for _, line := range lines {
		switch audit.TypeOf(line) {
		case audit.Ended:
			return nil
		case audit.DiffRecorded:
			recorded = true
		case events.CommandStarted, events.CommandEnded, events.SandboxRolledBack, events.SandboxRefreshed:
			recorded = false
		}
	}
	if !recorded {
		if err := RecordChanges(ctx, e, rec); err != nil {
			return err
		}
	}
	if err := countDestinations(e, l, rec); err != nil {
		return err
	}
	return s.end(l)
}

// end signs the statement that closes the evidence log l, with a summary, and adds its digest to the log.
func (s *Store) end(l *audit.Log) error {
	key, err := s.Key()
	if err != nil {
		return err
	}
	return s.sign(l, key, statement.EndType, endName, audit.Ended, func(records []audit.Record) (map[string]any, error) {
		isolation := any("not measured")
		for _, r := range records {
			if r.Type == events.SelfTested {
				isolation = r.Data
			}
		}
		return map[string]any{"summary": bundle.Summary(records), "isolation": isolation}, nil
	})
}

// countDestinations adds an entry to the evidence log l that says how often the sandbox's network proxy
// allowed or refused each destination.
func countDestinations(e *engine.Engine, l *audit.Log, rec *catalog.Record) error {
	type destination struct {
		host    string
		port    int
		allowed bool
	}
	all, err := e.Supervise.NetworkEvents(rec.Name)
	if err != nil || len(all) == 0 {
		return err
	}
	var order []destination
	counts := map[destination]int64{}
	for _, ev := range all {
		if ev.Ended || ev.Asked {
			continue
		}
		host := ev.Name
		if host == "" {
			host = ev.Addr.String()
		}
		d := destination{strings.ToValidUTF8(host, "�"), int(ev.Port), ev.Allowed}
		if counts[d]++; counts[d] == 1 {
			order = append(order, d)
		}
	}
	list := []any{}
	for _, d := range order {
		if len(list) == maxDestinations {
			break
		}
		list = append(list, map[string]any{"host": d.host, "port": d.port, "allowed": d.allowed, "count": counts[d]})
	}
	return l.Append(bundle.Counted, map[string]any{"destinations": list, "all": int64(len(order))}, false)
}

// maxDestinations is how many network destinations one log entry lists at most, so that it stays small. Of
// further ones it has only the number.
const maxDestinations = 1000

// An Exported is the evidence bundle of a sandbox as the bytes of a file, with the number of records and the
// root hash of its log.
type Exported struct {
	Text    []byte
	Records int
	Root    string
}

// Export returns the evidence bundle of the sandbox with this id, as bytes: log, statements, manifests and
// public key, with which others can verify it. It verifies each record of the log before it signs. Errors:
// errs.ErrCorrupt, with the number of the first wrong record.
func (s *Store) Export(id string) (*Exported, error) { return s.export(s.Log(id), id) }

// export does as [Store.Export] for the evidence log l of the sandbox with this id.
func (s *Store) export(l *audit.Log, id string) (*Exported, error) {
	if !l.Exists() {
		return nil, errs.New("exporting the evidence", id, errs.ErrNotFound, "this sandbox keeps no evidence", "snapfs new --evidence")
	}
	lines, records, err := l.Verified()
	if err != nil {
		return nil, errs.Wrap("exporting the evidence of "+id, l.Dir(), err)
	}
	if len(records) == 0 {
		return nil, errs.New("exporting the evidence of "+id, l.Dir(), errs.ErrCorrupt, "the log is empty")
	}
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	b := &bundle.Bundle{Sandbox: id, Key: key.Public(), Records: lines}
	for _, root := range bundle.Roots(records) {
		text, err := os.ReadFile(filepath.Join(l.Dir(), manifestPrefix+root+".jsonl"))
		if err != nil {
			return nil, errs.With("exporting the evidence of "+id, l.Dir(), err)
		}
		b.Manifests = append(b.Manifests, split(text))
	}
	for _, name := range []string{startName, endName} {
		line, err := os.ReadFile(filepath.Join(l.Dir(), name))
		if errors.Is(err, fs.ErrNotExist) && name == endName {
			break
		}
		if err != nil {
			return nil, errs.With("exporting the evidence of "+id, l.Dir(), err)
		}
		b.Statements = append(b.Statements, line)
	}
	gap, err := audit.GapIn(records)
	if err != nil {
		return nil, errs.Wrap("exporting the evidence of "+id, l.Dir(), err)
	}
	tree, err := audit.TreeWithout(lines, gap)
	if err != nil {
		return nil, err
	}
	root, err := tree.Root(tree.Size())
	if err != nil {
		return nil, err
	}
	if b.Checkpoint, err = key.SignCheckpoint(statement.Checkpoint{Sandbox: id, Size: tree.Size(), Root: root}); err != nil {
		return nil, err
	}
	if err := addCosignatures(l, b); err != nil {
		return nil, err
	}
	text, err := b.Encode()
	if err == nil {
		err = noteExport(l, tree.Size())
	}
	return &Exported{text, len(lines), fmt.Sprintf("%x", root[:])}, err
}

// Reveal returns the digests in the evidence log of the sandbox with this name or id that stand for text,
// such as an argument that the log must not show, with their salts. With these, others can check that the log
// is about text. Errors: errs.ErrNotFound.
func (s *Store) Reveal(name, text string) ([]audit.Match, error) {
	id, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	l := s.Log(id)
	lines, _, err := l.Lines()
	if err != nil {
		return nil, err
	}
	record := string(bytes.Join(lines, nil))
	all, err := l.Matches(text)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m audit.Match) bool { return !strings.Contains(record, m.Digest) })
	if len(all) == 0 {
		return nil, errs.New("revealing a text of "+name, "", errs.ErrNotFound, "no digest in the record stands for it")
	}
	return all, nil
}

// split returns the lines of text, a file of evidence, without the line breaks. text is empty or ends with a
// line break.
func split(text []byte) [][]byte {
	lines := [][]byte{}
	for line := range bytes.Lines(text) {
		lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
	}
	return lines
}

func recordsOf(l *audit.Log) ([]audit.Record, error) {
	lines, _, err := l.Lines()
	if err != nil {
		return nil, err
	}
	return decode(lines)
}

// decode returns the entries of an evidence log, given as lines of JSON. An empty log is an error.
func decode(lines [][]byte) ([]audit.Record, error) {
	records, bad := audit.ParseAll(lines)
	if bad >= 0 {
		return nil, fmt.Errorf("line %d of the log is no record", bad+1)
	}
	if len(records) == 0 {
		return nil, errors.New("the log is empty")
	}
	return records, nil
}
