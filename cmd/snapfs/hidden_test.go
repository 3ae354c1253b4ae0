package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// At a terminal the command's output passes through snapfs, so that a program that opens a hidden file by itself,
// and says so, is recognised.
func TestAHiddenPathInAFailedCommandsOutputIsReported(t *testing.T) {
	b := newDesk(t)
	secret := filepath.Join(treetest.Dir(t), "secret")
	if err := os.WriteFile(secret, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `d=$(dirname "$0"); n=secr; echo "cannot use $d/${n}et"; exit 3`
	p := sit(t, b, "run", "--hide", secret, "--", "sh", "-c", script, filepath.Dir(secret)+"/program")
	p.sees("status 3; " + secret + " is hidden from the sandbox")
	p.sees("hint: snapfs run --expose " + secret)
	if got := p.leaves(); got != 3 {
		t.Errorf("status %d", got)
	}
	p = sit(t, b, "run", "--hide", secret, "--", "sh", "-c", "echo secret; exit 4")
	p.sees("nothing changed")
	if got := p.leaves(); got != 4 {
		t.Errorf("status %d", got)
	}
	if got := p.screenAtEnd(); strings.Contains(got, " is hidden") {
		t.Errorf("a word like the file's name is taken for it:\n%s", got)
	}
}
