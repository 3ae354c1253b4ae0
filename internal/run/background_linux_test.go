package run_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/run"
)

// TestDetachedLeavesNoDeadChild: a process that lives on, such as a server, does not keep what it started.
func TestDetachedLeavesNoDeadChild(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = run.Detached([]string{"/bin/sh", "-c", "echo $$ >&3"}, nil, w)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := io.ReadAll(r)
	if err != nil || len(pid) < 2 {
		t.Fatalf("%q, %v", pid, err)
	}
	at := filepath.Join("/proc", strings.TrimSpace(string(pid)))
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			stat, _ := os.ReadFile(at + "/stat")
			t.Fatalf("the dead child stays: %s", stat)
		}
	}
}
