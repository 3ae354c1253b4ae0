package audit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// staged is the pattern of the names of new files of an evidence log that are not complete. A process that was killed
// leaves one; removeStaged removes it when it is older than stagedTime, since another process may be writing it.
const (
	staged     = "replacing-*.new"
	stagedTime = time.Hour
)

// replace atomically replaces the file of the evidence log at path by the output of write, or creates it. When it
// returns, the file is on stable storage under this name, so that the caller may remove the files whose content it has.
// After an error or a crash there is the old file, or the new one.
func (l *Log) replace(path string, write func(io.Writer) error) error {
	next, err := os.CreateTemp(l.dir, staged) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) //nolint:errcheck // after the rename it has another name
	err = errors.Join(write(next), next.Sync(), next.Close())
	l.passed("staged")
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err == nil {
		err = vfs.SyncDir(l.dir)
	}
	return err
}

// removeStaged removes the files that killed processes left while they replaced others.
func (l *Log) removeStaged() error {
	entries, err := os.ReadDir(l.dir)
	for _, e := range entries {
		if ours, merr := filepath.Match(staged, e.Name()); merr != nil || !ours {
			continue
		}
		st, serr := e.Info()
		if serr == nil && time.Since(st.ModTime()) > stagedTime {
			serr = os.Remove(filepath.Join(l.dir, e.Name()))
		}
		if serr != nil && !errors.Is(serr, fs.ErrNotExist) { // else its process has finished
			err = errors.Join(err, serr)
		}
	}
	return err
}
