package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"golang.org/x/mod/sumdb/tlog"
)

// cosignedName is the name of the file beside an evidence log with the cosignatures of its checkpoints, one a line.
const cosignedName = "cosigned.jsonl"

// A cosignature is a line of that file: a checkpoint as this host has signed it, and the cosignature of a witness.
type cosignature struct {
	Checkpoint string `json:"checkpoint"`
	Line       string `json:"cosignature"`
	Witness    string `json:"witness"`
	Size       int64  `json:"size"`
}

// A Cosigned is the result of a cosignature of a sandbox's evidence.
type Cosigned struct {
	Sandbox string `json:"sandbox"`
	// Witness is the name of the witness, and Records how many records it has cosigned, at the time Time.
	Witness string    `json:"witness"`
	Records int64     `json:"records"`
	Time    time.Time `json:"time"`
}

// An Asker asks a witness to cosign a checkpoint, with the proof that the log continues its first old records. other is
// the size that the witness has last cosigned, if err says that it is not old; else -1.
type Asker func(old int64, proof tlog.TreeProof, checkpoint []byte) (lines []string, other int64, err error)

// Cosign asks a witness by ask to cosign the evidence log of the sandbox with this id as it is, verifies what it
// answers with the key of w, and stores it. Later exports have it. Errors: errs.ErrCorrupt, if the witness has seen
// another log, or a longer one, or its cosignature is wrong; those of ask.
func (s *Store) Cosign(id string, w statement.Witness, ask Asker) (*Cosigned, error) {
	l := s.Log(id)
	tree, signed, err := s.checkpoint(l, id)
	if err != nil {
		return nil, err
	}
	before, err := cosignaturesOf(l)
	if err != nil {
		return nil, err
	}
	old := int64(0)
	for _, c := range before {
		if c.Witness == w.String() {
			old = max(old, c.Size)
		}
	}
	lines, other, err := askFrom(tree, old, signed, ask)
	if err != nil && other >= 0 {
		if other > tree.Size() {
			return nil, errs.New("cosigning the evidence of "+id, l.Dir(), errs.ErrCorrupt,
				fmt.Sprintf("%s has cosigned %d records of this log, and there are %d: records are missing", w.Name, other, tree.Size()))
		}
		lines, _, err = askFrom(tree, other, signed, ask)
	}
	if err != nil {
		return nil, err
	}
	text, _, err := statement.CheckpointText(signed)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		if at, err := w.Verify(text, line); err == nil {
			return &Cosigned{id, w.Name, tree.Size(), at}, addCosignature(l, cosignature{string(signed), line, w.String(), tree.Size()})
		}
	}
	return nil, errs.New("cosigning the evidence of "+id, l.Dir(), errs.ErrCorrupt, "the answer has no cosignature by "+w.String())
}

func askFrom(tree *audit.Tree, old int64, signed []byte, ask Asker) ([]string, int64, error) {
	var proof tlog.TreeProof
	if old > 0 && old < tree.Size() {
		var err error
		if proof, err = tlog.ProveTree(tree.Size(), old, tree); err != nil {
			return nil, -1, err
		}
	}
	return ask(old, proof, signed)
}

// checkpoint returns the Merkle tree over the evidence log l of the sandbox with this id, and its signed checkpoint.
func (s *Store) checkpoint(l *audit.Log, id string) (*audit.Tree, []byte, error) {
	key, err := s.Key()
	if err != nil {
		return nil, nil, err
	}
	lines, records, err := l.Verified()
	if err != nil {
		return nil, nil, err
	}
	gap, err := audit.GapIn(records)
	if err != nil {
		return nil, nil, err
	}
	tree, err := audit.TreeWithout(lines, gap)
	if err != nil {
		return nil, nil, err
	}
	root, err := tree.Root(tree.Size())
	if err != nil {
		return nil, nil, err
	}
	signed, err := key.SignCheckpoint(statement.Checkpoint{Sandbox: id, Size: tree.Size(), Root: root})
	return tree, signed, err
}

// ErrNotCosigned is matched by the error for a file that is no copy of a sandbox's evidence with a cosignature.
var ErrNotCosigned = errors.New("the file is no cosigned copy of this record")

// AddCosigned stores the cosignatures of text, an evidence bundle of the sandbox with this id to which another party
// has added one. It returns the last one. Errors: errs.ErrCorrupt, and also ErrNotCosigned if the cause is the bundle:
// it is not as it was signed, or not of this log.
func (s *Store) AddCosigned(id string, text []byte) (*Cosigned, error) {
	l := s.Log(id)
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	r := bundle.Verify(text, bundle.Options{Key: key.Public()})
	wrong := func(why string) error {
		return &errs.Error{Op: "adding cosignatures to the evidence of " + id, Path: l.Dir(), Kind: errs.ErrCorrupt, Err: fmt.Errorf("%w: %s", ErrNotCosigned, why)}
	}
	for _, v := range r.Verdicts[:2] {
		if v.Result != "yes" {
			return nil, wrong("no " + v.Name + ": " + v.Why)
		}
	}
	b, err := bundle.Decode(text)
	if err != nil || b.Sandbox != id || len(b.Cosigned) == 0 {
		return nil, wrong("it has no cosignature, or is of another sandbox")
	}
	tree, _, err := s.checkpoint(l, id)
	if err != nil {
		return nil, err
	}
	var last *Cosigned
	for _, c := range b.Cosigned {
		point, lines, err := statement.CheckpointText(c.Checkpoint)
		if err != nil {
			return nil, wrong(err.Error())
		}
		signed := []byte(point + "\n" + lines[0] + "\n")
		at, err := statement.OpenCheckpoint(signed, id, key.Public())
		if err != nil {
			return nil, wrong(err.Error())
		}
		if root, err := tree.Root(min(at.Size, tree.Size())); err != nil || root != at.Root {
			return nil, wrong("its root is another")
		}
		for _, line := range lines[1:] {
			for _, w := range b.Witnesses {
				if when, err := w.Verify(point, line); err == nil {
					if err := addCosignature(l, cosignature{string(signed), line, w.String(), at.Size}); err != nil {
						return nil, err
					}
					last = &Cosigned{id, w.Name, at.Size, when}
				}
			}
		}
	}
	return last, nil
}

// addCosignature stores c beside the evidence log l, on stable storage, unless it is there.
func addCosignature(l *audit.Log, c cosignature) error {
	before, err := cosignaturesOf(l)
	if err != nil {
		return err
	}
	for _, b := range before {
		if b.Checkpoint == c.Checkpoint && b.Witness == c.Witness {
			return nil
		}
	}
	line, err := audit.Canonical(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(l.Dir(), cosignedName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		// A line that a killed writer left incomplete ends first.
		_, err = f.WriteString("\n" + string(line) + "\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return errs.With("storing a cosignature", l.Dir(), err)
}

// cosignaturesOf returns the cosignatures beside the evidence log l, oldest first. It skips an incomplete line.
func cosignaturesOf(l *audit.Log) (all []cosignature, err error) {
	text, err := os.ReadFile(filepath.Join(l.Dir(), cosignedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.With("reading cosignatures", l.Dir(), err)
	}
	for line := range bytes.Lines(text) {
		var c cosignature
		if json.Unmarshal(line, &c) == nil && strings.HasSuffix(string(line), "\n") {
			all = append(all, c)
		}
	}
	return all, nil
}

// addCosignatures puts the cosignatures beside the evidence log l into its bundle b.
func addCosignatures(l *audit.Log, b *bundle.Bundle) error {
	all, err := cosignaturesOf(l)
	for _, c := range all {
		var w statement.Witness
		if w, err = statement.ParseWitness(c.Witness); err == nil {
			err = b.AddCosignature([]byte(c.Checkpoint), c.Line, w)
		}
		if err != nil {
			return errs.New("adding cosignatures to a bundle", filepath.Join(l.Dir(), cosignedName), errs.ErrCorrupt, err.Error())
		}
	}
	return err
}
