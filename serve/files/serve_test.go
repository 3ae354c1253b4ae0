//go:build linux

package files

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// connect returns a Session whose other process is a goroutine that serves tree.
func connect(t *testing.T, tree Tree) *Session {
	t.Helper()
	requests, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, replies, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- errors.Join(Serve(tree, requests, replies), replies.Close()) }()
	s := &Session{ctx: context.Background(), out: out, in: in, buf: bufio.NewReader(in)}
	t.Cleanup(func() {
		out.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		in.Close()
		requests.Close()
	})
	return s
}

func TestASessionIsATree(t *testing.T) {
	r, dir, _ := newRoot(t)
	checkOperations(t, connect(t, r), dir)
}

func TestASessionPassesContentAndErrors(t *testing.T) {
	r, dir, _ := newRoot(t)
	s := connect(t, r)
	big := strings.Repeat("0123456789abcdef", 100_000)
	if _, err := s.Write("big", strings.NewReader(big), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if read(t, s, "big") != big {
		t.Error("the content differs")
	}
	f, _, err := s.Read("big", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(f, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil { // in the middle
		t.Error(err)
	}
	if _, err := s.Write("big", io.MultiReader(strings.NewReader("new"), broken{}), WriteOptions{}); err == nil {
		t.Error("no error of the source")
	}
	if read(t, s, "big") != big {
		t.Error("an interrupted write has changed the file")
	}
	if _, err := s.Write("no/such", strings.NewReader(big), WriteOptions{}); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
	var e *errs.Error
	if _, _, err := s.Read("none", 0); !errors.As(err, &e) || e.Path != "none" || e.Op != "reading" || !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("%v", err)
	}
	write(t, filepath.Join(dir, "empty"), "")
	if got := read(t, s, "empty"); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestAHostileHelperCannotFillTheServer: a process of the sandbox may have taken the helper over.
func TestAHostileHelperCannotFillTheServer(t *testing.T) {
	for name, line := range map[string]string{
		"no end": strings.Repeat("x", maxLine+100), "too many bytes": `{"bytes":1000000000}` + "\n", "negative": `{"bytes":-1}` + "\n", "no JSON": "x\n",
	} {
		if _, err := receive(bufio.NewReader(strings.NewReader(line))); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := receive(bufio.NewReader(strings.NewReader(`{"bytes":5}` + "\nab"))); err == nil {
		t.Error("a short message is no error")
	}
}
