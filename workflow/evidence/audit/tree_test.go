package audit

import (
	"bytes"
	"encoding/base64"
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

// stored are the hashes of a Merkle tree that package tlog builds a line at a time.
type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) (list []tlog.Hash, err error) {
	for _, at := range indexes {
		list = append(list, s[at])
	}
	return list, nil
}

// numbered returns n different lines, and the hashes of their Merkle tree.
func numbered(t testing.TB, n int) (lines [][]byte, slow stored) {
	t.Helper()
	for i := range n {
		lines = append(lines, fmt.Appendf(nil, "line %d", i))
		more, err := tlog.StoredHashes(int64(i), lines[i], slow)
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, more...)
	}
	return lines, slow
}

// TestATreeHasTheHashesOfTlog compares trees of many sizes, some of which several processors build, with those that
// package tlog builds a line at a time.
func TestATreeHasTheHashesOfTlog(t *testing.T) {
	lines, slow := numbered(t, 4*partSize+3)
	for n := 1; n <= len(lines); n++ {
		if n > 70 && n != partSize && n != 2*partSize+1 && n != len(lines) {
			continue
		}
		tree, err := TreeOf(lines[:n])
		if err != nil || tree.Size() != int64(n) || !slices.Equal(tree.hashes, slow[:tlog.StoredHashCount(int64(n))]) {
			t.Fatalf("the tree of %d lines is another, %v", n, err)
		}
		if root, err := tree.Root(int64(n)); err != nil || root != rootOf(t, slow, int64(n)) {
			t.Fatalf("the root of %d lines is %v, %v", n, root, err)
		}
	}
	if tree, err := TreeOf(nil); err != nil || len(tree.hashes) != 0 {
		t.Errorf("the tree of no lines: %v, %v", tree, err)
	}
}

// rootOf returns the root that package tlog computes for the first n lines of the tree slow.
func rootOf(t testing.TB, slow stored, n int64) tlog.Hash {
	t.Helper()
	root, err := tlog.TreeHash(n, slow)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestATreeWithoutRemovedLinesHasTheRootsOfTlog removes lines from trees of many sizes, twice. The roots, of all sizes
// that remain and of those that were to be kept, are those that package tlog computes with all lines, and so are the
// hashes and the proofs.
func TestATreeWithoutRemovedLinesHasTheRootsOfTlog(t *testing.T) {
	lines, slow := numbered(t, 4*partSize+3)
	check := func(n, first, second int64) {
		t.Helper()
		tree, err := TreeOf(lines[:n])
		var removed []int64
		for _, next := range []int64{first, second} {
			if next <= Opening || err != nil {
				continue
			}
			if len(removed) == 0 {
				removed = append(removed, (Opening+next)/2)
			}
			removed = append(removed, next)
			r := &Removed{}
			if err = tree.Remove(r, next, slices.Clone(removed)); err != nil {
				break
			}
			tree, err = TreeWithout(slices.Concat(lines[:Opening], lines[next:n]), r)
		}
		if err != nil || tree.Size() != n || !slices.Equal(tree.hashes, slow[tree.first:tlog.StoredHashCount(n)]) {
			t.Fatalf("the tree of %d lines without those before %d and %d is another, %v", n, first, second, err)
		}
		for _, size := range append(removed, min(max(first, second)+1, n), max(first, second, n-1), n) {
			if size <= Opening || size > n {
				continue
			}
			want := rootOf(t, slow, size)
			if root, err := tree.Root(size); err != nil || root != want {
				t.Fatalf("the root of %d of %d lines without those before %d and %d is %v, %v", size, n, first, second, root, err)
			}
			if err := tree.Continues(size, want); err != nil {
				t.Fatalf("%d of %d lines without those before %d and %d: %v", size, n, first, second, err)
			}
		}
	}
	for n := int64(Opening + 1); n <= 40; n++ {
		for first := int64(Opening); first <= n; first++ {
			check(n, first, 0)
			check(n, first, (first+n)/2)
		}
	}
	for _, n := range []int64{partSize, 2*partSize + 1, int64(len(lines))} {
		for _, first := range []int64{Opening + 1, 64, 65, partSize - 1, partSize} {
			check(n, first, 0)
			check(n, first, max(first, n-1))
		}
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

// TestLinesVerifiedOnceAreComparedAfterARemoval verifies a log before and after old segments were removed, in the same
// process. It finds what another process finds, and an error if a statement later tells another story of the removal.
func TestLinesVerifiedOnceAreComparedAfterARemoval(t *testing.T) {
	accept := func([]byte) error { return nil }
	l := segmented(t).SignedBy(accept)
	compare := func(what string) []Record {
		t.Helper()
		lines, got, err := l.Verified()
		_, want, werr := inSegments(reopened(l.Dir())).SignedBy(accept).Verified()
		if err != nil || werr != nil || len(lines) != len(got) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: %d records, %v; another process has %d, %v", what, len(got), err, len(want), werr)
		}
		return got
	}
	all := compare("the whole log")
	next, err := prune(inSegments(reopened(l.Dir())))
	if err != nil || next <= Opening {
		t.Fatal(next, err)
	}
	if left := compare("after the removal"); len(left) >= len(all) {
		t.Errorf("%d records are left of %d", len(left), len(all))
	}
	if err := reopened(l.Dir()).SignedBy(accept).Append("other", nil, false); err != nil {
		t.Fatal(err)
	}
	records := compare("with one more record")
	r, err := GapIn(records)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	r.Digest = FirstPrev
	body, err := Canonical(map[string]any{"predicate": map[string]any{"removed": r}})
	if err != nil {
		t.Fatal(err)
	}
	other := map[string]any{"statement": fmt.Sprintf(`{"payload":%q}`, base64.StdEncoding.EncodeToString(body))}
	if err := reopened(l.Dir()).SignedBy(accept).Append(RecordsRemoved, other, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Verified(); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("the removed records end with another line now: %v", err)
	}
}
