package engine

import (
	"errors"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/isolate"
)

// Hints are the commands that mend an error, best first.
func Hints(err error) []string {
	var s *snapshot.Error
	if errors.As(err, &s) && len(s.Hints) > 0 {
		return s.Hints
	}
	var i *isolate.Error
	if errors.As(err, &i) {
		return i.Hints
	}
	return nil
}
