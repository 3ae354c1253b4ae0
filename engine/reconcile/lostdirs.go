package reconcile

import (
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
)

// addLost adds, as conflicts of the merge, directories that the sandbox renamed and whose entries the real tree lost.
func (m *partMerge) addLost() error {
	for i := range m.Part.LostDirs {
		l := &m.Part.LostDirs[i]
		rel, err := filepath.Rel(m.Part.Root, l.Path)
		if err != nil {
			return errs.With("comparing", l.Path, err)
		}
		if m.in.Lost == nil {
			m.in.Lost = map[string]string{}
		}
		m.in.Lost[rel] = l.Why()
	}
	return nil
}
