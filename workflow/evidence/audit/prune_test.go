package audit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// prune removes the segments before the third from the end, without a signature.
func prune(l *Log) (int64, error) {
	l.SignedBy(func([]byte) error { return nil })
	return l.Prune(Pruning{
		Choose: func(segments []Segment, _ []Record) int64 { return segments[max(len(segments)-3, 0)].First },
		Sign: func(lines [][]byte, records []Record, removed *Removed, next int64) (map[string]any, error) {
			tree, err := TreeWithout(lines, removed)
			if err != nil {
				return nil, err
			}
			r := Removed{Running: []string{}}
			for i, rec := range records {
				if rec.Seq == next {
					r.Digest = Digest(lines[i-1])
				}
			}
			if err := tree.Remove(&r, next, []int64{3, next - 5}); err != nil {
				return nil, err
			}
			body, err := Canonical(map[string]any{"predicate": map[string]any{"removed": r}})
			return map[string]any{"statement": fmt.Sprintf(`{"payload":%q}`, base64.StdEncoding.EncodeToString(body))}, err
		},
	})
}

// rootAt returns the root of the log's tree at its present size, and at some smaller ones.
func rootAt(t testing.TB, l *Log, sizes ...int64) (all []string) {
	t.Helper()
	lines, records, err := l.Verified()
	if err != nil {
		t.Fatal(err)
	}
	gap, err := GapIn(records)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := TreeWithout(lines, gap)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range sizes {
		root, err := tree.Root(n)
		if err != nil {
			t.Fatalf("the root of %d of %d records: %v", n, tree.Size(), err)
		}
		all = append(all, root.String())
	}
	return all
}

// TestARemovalKeepsRootsAndChain removes segments twice. The roots of the log at every size that remains, and at the
// sizes that were to be kept, are those of before, and new records continue the chain.
func TestARemovalKeepsRootsAndChain(t *testing.T) {
	l := segmented(t)
	whole := files(t, l)
	for round := range 2 {
		last, err := l.Last()
		if err != nil {
			t.Fatal(err)
		}
		size := last.Seq + 1
		before := rootAt(t, l, size-1, size)
		next, err := prune(inSegments(reopened(l.Dir())))
		if err != nil || next <= Opening {
			t.Fatalf("round %d: %d, %v", round, next, err)
		}
		l = inSegments(reopened(l.Dir())).SignedBy(func([]byte) error { return nil })
		if after := rootAt(t, l, size-1, size); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("round %d: the roots %v are now %v", round, before, after)
		}
		if round == 0 {
			rootAt(t, l, 3, next-5, next, next+1)
		}
		for i := range 20 {
			if err := act(l, i); err != nil {
				t.Fatal(err)
			}
		}
		_ = os.Remove(filepath.Join(l.Dir(), positionName))
		if _, err := inSegments(reopened(l.Dir())).SignedBy(l.signed).Last(); err != nil {
			t.Errorf("round %d: a process that reads the whole log: %v", round, err)
		}
	}
	if now := files(t, l); now[1] == whole[1] {
		t.Errorf("the files are %v, and were %v", now, whole)
	}
	if _, _, err := reopened(l.Dir()).Verified(); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(err.Error(), "signature") {
		t.Errorf("without a check of the signature: %v", err)
	}
	remove(t, l, files(t, l)[1])
	_ = os.Remove(filepath.Join(l.Dir(), positionName))
	if _, err := inSegments(reopened(l.Dir())).SignedBy(l.signed).Last(); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("another segment was removed: %v", err)
	}
}

// TestAnInterruptedRemovalIsFinished ends a removal after each of its steps. The log can be read and continued then,
// and the next call finishes the removal.
func TestAnInterruptedRemovalIsFinished(t *testing.T) {
	for _, step := range []string{"stated", "removed", "staged", "cut"} {
		for _, zip := range []bool{false, true} {
			t.Run(fmt.Sprint(step, zip), func(t *testing.T) {
				l := segmented(t)
				if zip {
					if err := l.Compress(); err != nil {
						t.Fatal(err)
					}
				}
				last, err := l.Last()
				if err != nil {
					t.Fatal(err)
				}
				before := rootAt(t, l, last.Seq+1)
				func() {
					defer func() {
						if at := recover(); at != step {
							t.Fatalf("it ended with %v", at)
						}
					}()
					cut := inSegments(reopened(l.Dir()))
					cut.step = func(at string) {
						if at == step {
							panic(at)
						}
					}
					_, err := prune(cut)
					t.Errorf("the removal ended: %v", err)
				}()
				l = inSegments(reopened(l.Dir())).SignedBy(func([]byte) error { return nil })
				remove(t, l, positionName)
				if after := rootAt(t, l, last.Seq+1); after[0] != before[0] {
					t.Errorf("the root %s is now %s", before[0], after[0])
				}
				if err := act(l, 1); err != nil {
					t.Fatal(err)
				}
				if next, err := prune(l); err != nil && next > 0 {
					t.Errorf("the removal is not finished: %d, %v", next, err)
				}
				lines, records, err := reopened(l.Dir()).SignedBy(l.signed).Verified()
				if gap, gapErr := GapIn(records); err != nil || gapErr != nil || gap == nil || len(lines) != len(records) {
					t.Errorf("%d lines, removed: %v, %v, %v", len(lines), gap, err, gapErr)
				}
				if st, err := os.Stat(filepath.Join(l.Dir(), segmentName(0))); err != nil || st.Size() > 3000 {
					t.Errorf("the first file was not cut: %v, %v", st, err)
				}
			})
		}
	}
}

// TestCompressedSegmentsAreTheSameLog compresses the closed segments. Readers find the same lines; a compression that
// was interrupted leaves the log as it was; a damaged file is named.
func TestCompressedSegmentsAreTheSameLog(t *testing.T) {
	l := segmented(t)
	before, _, err := l.Lines()
	if err != nil {
		t.Fatal(err)
	}
	_, size, err := l.size()
	if err != nil {
		t.Fatal(err)
	}
	names := files(t, l)
	left, fresh := filepath.Join(l.Dir(), "replacing-1.new"), filepath.Join(l.Dir(), "replacing-2.new") // as killed processes leave them
	if err := errors.Join(os.WriteFile(left, nil, 0o600), os.WriteFile(fresh, nil, 0o600), os.Chtimes(left, time.Time{}, time.Now().Add(-2*stagedTime))); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"staged", "renamed"} {
		cut := inSegments(reopened(l.Dir()))
		cut.step = func(at string) {
			if at == step {
				panic(at)
			}
		}
		func() {
			defer func() { _ = recover() }()
			t.Errorf("the compression ended: %v", cut.Compress())
		}()
	}
	if now, err := filepath.Glob(filepath.Join(l.Dir(), "*.new")); err != nil || !slices.Equal(now, []string{fresh}) {
		t.Errorf("there are %q, %v", now, err)
	}
	remove(t, l, filepath.Base(fresh))
	for range 2 {
		l = inSegments(reopened(l.Dir()))
		after, _, err := l.Lines()
		if err != nil || fmt.Sprintf("%s", after) != fmt.Sprintf("%s", before) {
			t.Fatalf("%d lines, and were %d: %v", len(after), len(before), err)
		}
		if _, now, err := l.size(); err != nil || now != size {
			t.Errorf("%d bytes of lines, and were %d: %v", now, size, err)
		}
		remove(t, l, positionName)
		if err := act(l, 1); err != nil {
			t.Fatal(err)
		}
		if before, _, err = l.Lines(); err != nil {
			t.Fatal(err)
		}
		if _, size, err = l.size(); err != nil {
			t.Fatal(err)
		}
		if err := l.Compress(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names[:len(names)-1] {
		if st, err := os.Stat(filepath.Join(l.Dir(), name+zipped)); err != nil || st.Size() > 2000 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		if _, err := os.Stat(filepath.Join(l.Dir(), name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	path := filepath.Join(l.Dir(), names[1]+zipped)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Verified(); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(err.Error(), names[1]) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestEachPositionIsContinuedAfterARemoval has verified a log up to each of its first records: in a process that stays, or
// by a position stored beside the log. Another process then removes old segments. The log still goes on from each of
// the positions, whether its records were removed or not.
func TestEachPositionIsContinuedAfterARemoval(t *testing.T) {
	accept := func([]byte) error { return nil }
	l := inSegments(newLog(t, treetest.Dir(t)))
	path := filepath.Join(l.Dir(), positionName)
	var processes []*Log
	for i := range 40 {
		if err := act(l, i); err != nil {
			t.Fatal(err)
		}
		p := inSegments(reopened(l.Dir())).SignedBy(accept)
		if _, err := p.Last(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, p)
	}
	if next, err := prune(inSegments(reopened(l.Dir()))); err != nil || next <= Opening {
		t.Fatal(next, err)
	}
	for i, p := range processes {
		line, err := Canonical(p.seen)
		if err != nil {
			t.Fatal(err)
		}
		code, err := p.mac(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "%s\n%x\n", line, code), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := inSegments(reopened(l.Dir())).SignedBy(accept).Last(); err != nil {
			t.Errorf("the stored position after record %d: %v", i, err)
		}
		if err := act(p, i); err != nil {
			t.Errorf("a process that has verified up to record %d: %v", i, err)
		}
	}
}
