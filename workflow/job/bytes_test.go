package job

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestJobsKeepAnyBytes: the workspace, command and environment of a job may be any bytes.
func TestJobsKeepAnyBytes(t *testing.T) {
	s := &Store{dir: t.TempDir()}
	for _, dir := range []string{s.path(1), filepath.Join(s.dir, triggersDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	exactjsontest.RoundTrip(t, func(j Job) ([]byte, error) {
		if err := save(s.path(1), &j); err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(s.path(1), recordFile))
	}, func([]byte) (Job, error) {
		j, err := s.Get(1)
		if err != nil {
			return Job{}, err
		}
		return *j, nil
	}, func(j *Job) { j.Number = 1 })
	exactjsontest.RoundTrip(t, func(v storedTrigger) ([]byte, error) {
		if err := s.saveTrigger(&v); err != nil {
			return nil, err
		}
		return os.ReadFile(s.triggerPath(1))
	}, func([]byte) (storedTrigger, error) {
		v, err := s.readTrigger(1)
		if err != nil {
			return storedTrigger{}, err
		}
		return *v, nil
	}, func(v *storedTrigger) { v.Number = 1 })
}
