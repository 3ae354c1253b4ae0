package audit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// inSegments makes the log close its files at a size of some records.
func inSegments(l *Log) *Log {
	l.segment = 4000
	return l
}

// act records an operation as the store does.
func act(l *Log, i int) error {
	if err := l.Room(); err != nil {
		return err
	}
	return l.Append("t", map[string]any{"i": i, "long": strings.Repeat("x", 600)}, false)
}

// segmented returns a log with several segments, as a new process finds it.
func segmented(t testing.TB) *Log {
	t.Helper()
	l := inSegments(newLog(t, treetest.Dir(t)))
	for i := range 40 {
		if err := act(l, i); err != nil {
			t.Fatal(err)
		}
	}
	if all := files(t, l); len(all) < 5 {
		t.Fatalf("the log has only these files: %s", all)
	}
	return inSegments(reopened(l.Dir()))
}

// files returns the names of the log's files, the newest last.
func files(t testing.TB, l *Log) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(l.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), segmentPrefix) {
			all = append(all, e.Name())
		}
	}
	return append(all, LogName)
}

func remove(t testing.TB, l *Log, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(l.Dir(), name)); err != nil {
		t.Fatal(err)
	}
}

// TestSegmentsAreOneChain checks the records at the ends of each segment, and that a new process reads the newest
// segment only.
func TestSegmentsAreOneChain(t *testing.T) {
	l := segmented(t)
	chained(t, l)
	all, _, err := l.read()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range all[1:] {
		before := all[i].lines
		last, err := Parse(before[len(before)-1])
		if err != nil || last.Type != Closed {
			t.Errorf("%s ends with %s, %v", all[i].path, last.Type, err)
		}
		first, err := Parse(s.lines[0])
		want := map[string]any{"head": Digest(before[len(before)-1]), "records": float64(s.first), "segment": filepath.Base(all[i].path)}
		if err != nil || first.Type != Continued || fmt.Sprint(first.Data) != fmt.Sprint(want) {
			t.Errorf("%s begins with %s %v, %v; want %v", s.path, first.Type, first.Data, err, want)
		}
	}
	for _, s := range all[:len(all)-1] {
		if st, err := os.Stat(s.path); err != nil || st.Size() > l.segment+2000 {
			t.Errorf("%s: %v, %v", s.path, st, err)
		}
	}
	if _, err := l.Last(); err != nil || l.parsed > int64(len(all[len(all)-1].lines)) {
		t.Errorf("a new process has read %d lines, and the newest segment has %d: %v", l.parsed, len(all[len(all)-1].lines), err)
	}
	lines, records, err := l.Verified()
	if err != nil || len(lines) != len(records) || len(lines) < 40 {
		t.Errorf("%d lines, %d records, %v", len(lines), len(records), err)
	}
}

// TestAPositionInAnOlderSegmentIsContinued stores the position, and then closes several segments without one.
func TestAPositionInAnOlderSegmentIsContinued(t *testing.T) {
	l := segmented(t)
	if err := l.Append("position", map[string]any{"long": strings.Repeat("x", 9000)}, true); err != nil {
		t.Fatal(err)
	}
	at := reopened(l.Dir()).stored()
	if at.Records == 0 || at.First == 0 {
		t.Fatalf("the stored position is %+v", at)
	}
	other := inSegments(At(l.Dir(), "s1")) // stores none
	for i := range 20 {
		if err := act(other, i); err != nil {
			t.Fatal(err)
		}
	}
	if now := reopened(l.Dir()).stored(); now != at {
		t.Fatalf("the position is %+v, and was %+v", now, at)
	}
	mine := reopened(l.Dir())
	last, err := mine.Last()
	if err != nil || mine.parsed != last.Seq+2-at.Records {
		t.Errorf("%d lines were read after record %d up to record %d: %v", mine.parsed, at.Records-1, last.Seq, err)
	}
	for _, name := range files(t, l) {
		if name == segmentName(at.First) {
			remove(t, l, name)
		}
	}
	if _, err := reopened(l.Dir()).Last(); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), segmentName(at.First)) {
		t.Errorf("without the segment of the position: %v", err)
	}
}

// TestAWrongSegmentIsNamed damages the closed segments of a log. Who reads the whole log names the file.
func TestAWrongSegmentIsNamed(t *testing.T) {
	other := segmented(t)
	for name, damage := range map[string]func(t *testing.T, l *Log, all []string) (named string){
		"missing first": func(t *testing.T, l *Log, all []string) string { remove(t, l, all[0]); return all[0] },
		"missing":       func(t *testing.T, l *Log, all []string) string { remove(t, l, all[2]); return all[2] },
		"missing last": func(t *testing.T, l *Log, all []string) string {
			remove(t, l, all[len(all)-2])
			return all[len(all)-2]
		},
		"missing newest": func(t *testing.T, l *Log, all []string) string {
			if err := os.WriteFile(filepath.Join(l.Dir(), LogName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return LogName
		},
		"replaced": func(t *testing.T, l *Log, all []string) string {
			text, err := os.ReadFile(filepath.Join(other.Dir(), all[1]))
			if err == nil {
				err = os.WriteFile(filepath.Join(l.Dir(), all[1]), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return all[1]
		},
		"reordered": func(t *testing.T, l *Log, all []string) string {
			a, b, c := filepath.Join(l.Dir(), all[1]), filepath.Join(l.Dir(), all[2]), filepath.Join(l.Dir(), "c")
			if err := errors.Join(os.Rename(a, c), os.Rename(b, a), os.Rename(c, b)); err != nil {
				t.Fatal(err)
			}
			return all[1]
		},
		"changed": func(t *testing.T, l *Log, all []string) string {
			change(t, l, all[1], `"long":"x`, `"long":"y`)
			return all[1]
		},
		"without its last record": func(t *testing.T, l *Log, all []string) string {
			path := filepath.Join(l.Dir(), all[1])
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, text[:strings.LastIndex(string(text[:len(text)-1]), "\n")+1], 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return all[2]
		},
		"torn": func(t *testing.T, l *Log, all []string) string {
			path := filepath.Join(l.Dir(), all[1])
			st, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, st.Size()-1)
			}
			if err != nil {
				t.Fatal(err)
			}
			return all[1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := segmented(t)
			named := damage(t, l, files(t, l))
			noPosition := At(l.Dir(), "s1")
			_, _, verified := noPosition.Verified()
			_, _, after := reopened(l.Dir()).Verified()
			sealed := reopened(l.Dir()).Seal("sealed", func([][]byte, []Record) (map[string]any, error) {
				t.Error("a statement is made about a damaged log")
				return nil, nil
			})
			for who, err := range map[string]error{"verified": verified, "with the position": after, "sealed": sealed, "appended": noPosition.Append("after", nil, false)} {
				if !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), named) {
					t.Errorf("%s: %v; want an error that names %s", who, err, named)
				}
			}
		})
	}
}

var rotationSteps = []string{"begun", "closed", "named", "created", "written", "replaced"}

// TestAKilledRotationGoesOn kills a process with SIGKILL after each step of a rotation. The next process reads and
// continues the log, in which no record is lost.
func TestAKilledRotationGoesOn(t *testing.T) {
	if dir := os.Getenv("SNAPFS_TEST_ROTATE"); dir != "" {
		l := inSegments(reopened(dir))
		l.step = func(step string) {
			if step == os.Getenv("SNAPFS_TEST_STEP") {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL) // it does not return
				select {}
			}
		}
		t.Fatal(l.rotate())
	}
	for _, step := range rotationSteps {
		t.Run(step, func(t *testing.T) {
			l := newLog(t, treetest.Dir(t))
			for i := range 10 {
				if err := act(l, i); err != nil {
					t.Fatal(err)
				}
			}
			child := exec.Command(os.Args[0], "-test.run", "^TestAKilledRotationGoesOn$")
			child.Env = append(os.Environ(), "SNAPFS_TEST_ROTATE="+l.Dir(), "SNAPFS_TEST_STEP="+step)
			out, err := child.CombinedOutput()
			if state := child.ProcessState; state == nil || state.String() != "signal: killed" {
				t.Fatalf("the child was not killed: %v\n%s", err, out)
			}
			if _, _, err := reopened(l.Dir()).Verified(); err != nil {
				t.Errorf("the log cannot be read: %v", err)
			}
			if err := reopened(l.Dir()).Append("killed", nil, false); err != nil { // not every record asks for room
				t.Errorf("a record is not added: %v", err)
			}
			next := inSegments(reopened(l.Dir()))
			for i := range 10 {
				if err := act(next, i); err != nil {
					t.Fatal(err)
				}
			}
			types := chained(t, l)
			if n := len(slices.DeleteFunc(types, func(kind string) bool { return kind != "t" && kind != "killed" })); n != 21 {
				t.Errorf("%d records of 21", n)
			}
			if _, err := os.Stat(filepath.Join(l.Dir(), nextName)); err == nil || len(files(t, l)) < 2 {
				t.Errorf("the log has the files %s, and %s: %v", files(t, l), nextName, err)
			}
		})
	}
}

// TestARotationOnAFullDiskKeepsTheLog fills the disk after each step of a rotation: the operation is refused, the
// log is whole, and goes on when there is space.
func TestARotationOnAFullDiskKeepsTheLog(t *testing.T) {
	treetest.NeedRoot(t)
	for _, step := range rotationSteps {
		t.Run(step, func(t *testing.T) {
			dir := treetest.Tmpfs(t, "256k")
			l := newLog(t, dir)
			for i := range 10 {
				if err := act(l, i); err != nil {
					t.Fatal(err)
				}
			}
			inSegments(l).step = func(now string) {
				if now == step {
					fill(t, filepath.Join(dir, "fill"))
				}
			}
			rotated := l.Room()
			if !errors.Is(rotated, errs.ErrNoSpace) { // a new segment needs space for the records of an operation, too
				t.Errorf("the operation: %v", rotated)
			}
			_, first, err := l.readFile(filepath.Join(l.Dir(), LogName))
			if began := step == "written" || step == "replaced"; err != nil || began != (first > 0) {
				t.Errorf("the newest file begins with record %d: %v", first, err)
			}
			if got := len(chained(t, reopened(l.Dir()))); got < 10 {
				t.Errorf("%d records of 10", got)
			}
			if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
				t.Fatal(err)
			}
			l.step = nil
			for i := range 10 {
				if err := act(l, i); err != nil {
					t.Fatal(err)
				}
			}
			types := chained(t, reopened(l.Dir()))
			if n := len(slices.DeleteFunc(types, func(kind string) bool { return kind != "t" })); n != 20 || len(files(t, l)) < 2 {
				t.Errorf("%d records of 20, in %s", n, files(t, l))
			}
		})
	}
}

// fill writes a file until the disk is full.
func fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestManyWritersRotate has processes that close segments at the same time.
func TestManyWritersRotate(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			mine := inSegments(reopened(l.Dir()))
			for i := range 30 {
				if err := act(mine, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	types := chained(t, l)
	if n := len(slices.DeleteFunc(types, func(kind string) bool { return kind != "t" })); n != 180 || len(files(t, l)) < 10 {
		t.Errorf("%d records of 180, in %s", n, files(t, l))
	}
}

// TestTheBoundIsThatOfAllSegments: closing a segment makes no room beyond the bound of the log.
func TestTheBoundIsThatOfAllSegments(t *testing.T) {
	l := inSegments(newLog(t, treetest.Dir(t)))
	l.most = 20_000
	n := 0
	for ; act(l, n) == nil && n < 1000; n++ {
		if n%7 == 0 {
			most := l.most
			l = inSegments(reopened(l.Dir()))
			l.most = most
		}
	}
	if err := l.Room(); !errors.Is(err, errs.ErrNoSpace) || n < 10 || n > 40 {
		t.Errorf("after %d records: %v", n, err)
	}
	if err := l.RoomForRefusal(); !errors.Is(err, errs.ErrNoSpace) {
		t.Errorf("a refusal: %v", err)
	}
}

// TestAForeignFileIsNotReplacedByASegment has another file at the name that a closed segment needs.
func TestAForeignFileIsNotReplacedByASegment(t *testing.T) {
	l := inSegments(newLog(t, treetest.Dir(t)))
	path := filepath.Join(l.Dir(), segmentName(0))
	err := act(l, 0)
	if werr := os.WriteFile(path, []byte("mine"), 0o600); werr != nil {
		t.Fatal(werr)
	}
	for i := 1; err == nil && i < 100; i++ {
		err = act(l, i)
	}
	if !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(err.Error(), segmentName(0)) {
		t.Errorf("the segment was closed: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}
	remove(t, l, segmentName(0))
	if err := act(l, 0); err != nil || len(files(t, l)) != 2 {
		t.Errorf("without this file the log has the files %s, %v", files(t, l), err)
	}
	chained(t, l)
}
