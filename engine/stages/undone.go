package stages

import (
	"errors"
	"os"
	"path/filepath"
)

// NoteUndone records that a promotion was undone, if a stage made it. The record
// is a file of its own, so that no lock of the pipeline is needed.
func (sg *Store) NoteUndone(promotion string) error {
	pipelines, err := sg.Pipelines()
	for i := range pipelines {
		if p := &pipelines[i]; p.Has(promotion) {
			return errors.Join(err, os.WriteFile(sg.undoneFile(p, promotion), nil, 0o600))
		}
	}
	return err
}

// NoteRedone removes the record of NoteUndone.
func (sg *Store) NoteRedone(promotion string) error {
	pipelines, err := sg.Pipelines()
	for i := range pipelines {
		if p := &pipelines[i]; p.Has(promotion) {
			if rerr := os.Remove(sg.undoneFile(p, promotion)); !errors.Is(rerr, os.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}
	return err
}

// WasUndone reports whether the promotion of a stage was undone after the
// pipeline made it.
func (sg *Store) WasUndone(p *Pipeline, s *StageRun) bool {
	if s.Promotion == "" {
		return false
	}
	_, err := os.Lstat(sg.undoneFile(p, s.Promotion))
	return err == nil
}

func (sg *Store) undoneFile(p *Pipeline, promotion string) string {
	return filepath.Join(sg.Dir(p.ID), "undone."+filepath.Base(promotion))
}
