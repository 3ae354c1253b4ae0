package stages

import (
	"errors"
	"os"
	"path/filepath"
)

// NoteUndone stores that the promotion with this identifier was undone, if a stage of a pipeline made it. A
// separate file says so, so that the lock of the pipeline is not needed.
func (sg *Store) NoteUndone(promotion string) error {
	pipelines, err := sg.Pipelines()
	for i := range pipelines {
		if p := &pipelines[i]; p.Has(promotion) {
			return errors.Join(err, os.WriteFile(sg.undoneFile(p, promotion), nil, 0o600))
		}
	}
	return err
}

// NoteRedone removes the file of [Store.NoteUndone], after an undone promotion of a stage was made again.
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

// WasUndone reports whether the promotion that the stage s of the pipeline p made was undone later.
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
