package promote

import (
	"errors"
	"os"
	"path/filepath"
)

// FirstReport marks the killed promotion id, which waits for its target, as reported to the user, and returns false if
// it already was. If it cannot be marked, it is reported again.
func FirstReport(stateDir, id string) bool {
	f, err := os.OpenFile(reportedFile(stateDir, id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, os.ErrExist)
}

// EndReport removes the mark of [FirstReport] when the promotion id waits no longer.
func EndReport(stateDir, id string) { _ = os.Remove(reportedFile(stateDir, id)) } // usually absent

func reportedFile(stateDir, id string) string { return filepath.Join(stateDir, id+".told") }
