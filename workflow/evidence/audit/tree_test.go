package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/mod/sumdb/tlog"
)

// TestATreeHasTheHashesOfTlog compares trees of many sizes, some of which several processors build, with those that
// package tlog builds a line at a time.
func TestATreeHasTheHashesOfTlog(t *testing.T) {
	lines := make([][]byte, 4*partSize+3)
	for i := range lines {
		lines[i] = fmt.Appendf(nil, "line %d", i)
	}
	slow := &Tree{}
	for i, line := range lines {
		more, err := tlog.StoredHashes(int64(i), line, slow)
		if err != nil {
			t.Fatal(err)
		}
		slow.hashes = append(slow.hashes, more...)
		if n := i + 1; n > 70 && n != partSize && n != 2*partSize+1 && n != len(lines) {
			continue
		}
		tree, err := TreeOf(lines[:i+1])
		if err != nil || tree.Size() != int64(i+1) || !slices.Equal(tree.hashes, slow.hashes) {
			t.Fatalf("the tree of %d lines is another, %v", i+1, err)
		}
	}
	if tree, err := TreeOf(nil); err != nil || len(tree.hashes) != 0 {
		t.Errorf("the tree of no lines: %v, %v", tree, err)
	}
}

// TestLinesVerifiedOnceAreComparedLater verifies a log after it was sealed, when only new lines need be parsed. A line
// that was changed since is found nevertheless.
func TestLinesVerifiedOnceAreComparedLater(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	for i := range 5 {
		if err := l.Append("t", map[string]any{"number": i}, false); err != nil {
			t.Fatal(err)
		}
	}
	seal := func([][]byte, []Record) (map[string]any, error) { return nil, nil }
	if err := l.Seal(Ended, seal); err != nil {
		t.Fatal(err)
	}
	if err := reopened(l.Dir()).Append("other", nil, false); err != nil {
		t.Fatal(err)
	}
	_, got, err := l.Verified()
	_, want, werr := reopened(l.Dir()).Verified()
	if err != nil || werr != nil || len(got) != 7 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v; another process has %v, %v", got, err, want, werr)
	}
	path := filepath.Join(l.Dir(), LogName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[bytes.Index(text, []byte(`"number":2`))+9] = '7'
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Verified(); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(err.Error(), "record 3,") {
		t.Errorf("after record 2 was changed: %v", err)
	}
}
