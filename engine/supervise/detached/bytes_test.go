package detached

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestDescriptionsKeepAnyBytes: the arguments of a detached command may be any bytes.
func TestDescriptionsKeepAnyBytes(t *testing.T) {
	dir := t.TempDir()
	exactjsontest.RoundTrip(t, func(v Command) ([]byte, error) {
		l := &Log{dir: dir, Command: v}
		if err := l.save(); err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(dir, "1.json"))
	}, func([]byte) (Command, error) {
		all, err := In(dir)
		if err != nil || len(all) != 1 {
			return Command{}, fmt.Errorf("%d commands (%w)", len(all), err)
		}
		return all[0], nil
	}, func(v *Command) { v.ID = 1 })
}
