package serve

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// The output of a command that still runs stays, and only the oldest outputs of ended commands go. Cost: milliseconds.
func TestOutputOfARunningCommandStays(t *testing.T) {
	record := t.TempDir()
	running, err := newOutput(record)
	if err != nil {
		t.Fatal(err)
	}
	defer running.close()
	var ended *output
	for i := range mostOutputs + 5 {
		o, err := newOutput(record)
		if err != nil {
			t.Fatal(err)
		}
		o.close()
		if i == 0 {
			ended = o
		}
	}
	if _, err := os.Stat(running.file.Name()); err != nil {
		t.Errorf("the output of a running command: %v", err)
	}
	if _, err := os.Stat(ended.file.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the oldest output of an ended command: %v, want that it does not exist", err)
	}
}
