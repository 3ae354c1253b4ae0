package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// reopened returns the log in dir as a new process finds it.
func reopened(dir string) *Log { return At(dir, "s1").StorePosition(codeOf("this host")) }

func codeOf(host string) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		code := hmac.New(sha256.New, []byte(host))
		code.Write(text)
		return code.Sum(nil), nil
	}
}

// longLog returns a log of n records, of which most are before the stored position.
func longLog(t *testing.T, n int) *Log {
	t.Helper()
	l := newLog(t, treetest.Dir(t))
	for i := range n {
		if err := l.Append("t", map[string]any{"i": i, "long": strings.Repeat("x", 800)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if l.saved.Records == 0 {
		t.Fatalf("after %d records no position is stored", n)
	}
	return reopened(l.Dir())
}

// change replaces the first old in the file called name in the directory of a log.
func change(t *testing.T, l *Log, name, old, replacement string) {
	t.Helper()
	path := filepath.Join(l.Dir(), name)
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, []byte(old)) {
		t.Fatalf("%q is not in %s, %v", old, path, err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(old), []byte(replacement), 1), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestALogIsVerifiedFromItsPositionOn changes the first record: only who reads the whole log finds that.
func TestALogIsVerifiedFromItsPositionOn(t *testing.T) {
	l := longLog(t, 50)
	change(t, l, LogName, `"i":0`, `"i":7`)
	if err := l.Append("after", nil, false); err != nil {
		t.Errorf("what is before the position was read: %v", err)
	}
	if r, err := reopened(l.Dir()).Last(); err != nil || r.Seq != 50 {
		t.Errorf("the last record is number %d, %v", r.Seq, err)
	}
	if err := os.Remove(filepath.Join(l.Dir(), positionName)); err != nil {
		t.Fatal(err)
	}
	if err := reopened(l.Dir()).Append("after", nil, false); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(err.Error(), "line 2 ") {
		t.Errorf("without a position: %v", err)
	}
}

// TestWhatFollowsThePositionIsVerified changes the log behind the stored position, where the last line
// stays a record of the sandbox.
func TestWhatFollowsThePositionIsVerified(t *testing.T) {
	for name, damage := range map[string]func(lines []string) []string{
		"changed":   func(lines []string) []string { lines[1] = strings.Replace(lines[1], `"i":`, `"i":1`, 1); return lines },
		"dropped":   func(lines []string) []string { return append(lines[:1], lines[2:]...) },
		"doubled":   func(lines []string) []string { return append(lines[:2], lines[1:]...) },
		"reordered": func(lines []string) []string { lines[1], lines[2] = lines[2], lines[1]; return lines },
		"no record": func(lines []string) []string { lines[1] = "no record\n"; return lines },
		"too long":  func(lines []string) []string { lines[1] = strings.Repeat("x", 2*maxLine); return lines },
	} {
		t.Run(name, func(t *testing.T) {
			l := longLog(t, 50)
			for at := l.stored(); l.stored() == at; { // until the position is at the end
				if err := l.Append("t", map[string]any{"i": 0, "long": strings.Repeat("x", 800)}, false); err != nil {
					t.Fatal(err)
				}
			}
			size := l.stored().Size
			for i := range 5 {
				if err := l.Append("tail", map[string]any{"i": i}, false); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(l.Dir(), LogName)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tail := strings.SplitAfter(string(text[size:]), "\n")
			if err := os.WriteFile(path, append(text[:size:size], strings.Join(damage(tail[:5]), "")...), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := reopened(l.Dir()).Append("after", nil, false); !errors.Is(err, errs.ErrCorrupt) {
				t.Errorf("a new process: %v", err)
			}
		})
	}
}

// TestAPositionThatIsNotBelievedCostsAReadOfAll has what a crash, a full disk or a forger may leave.
func TestAPositionThatIsNotBelievedCostsAReadOfAll(t *testing.T) {
	write := func(text func(old []byte) []byte) func(*testing.T, *Log) {
		return func(t *testing.T, l *Log) {
			path := filepath.Join(l.Dir(), positionName)
			old, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, text(old), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// store stores the position that change makes of the present one, with the code of host.
	store := func(host string, change func(p *position)) func(*testing.T, *Log) {
		return func(t *testing.T, l *Log) {
			p := l.stored()
			change(&p)
			forger := At(l.Dir(), "s1").StorePosition(codeOf(host))
			forger.storePosition(p)
			if forger.saved.Records == 0 {
				t.Fatal("it was not stored")
			}
		}
	}
	for name, spoil := range map[string]func(*testing.T, *Log){
		"missing": func(t *testing.T, l *Log) {
			if err := os.Remove(filepath.Join(l.Dir(), positionName)); err != nil {
				t.Fatal(err)
			}
		},
		"empty":              write(func([]byte) []byte { return nil }),
		"half":               write(func(old []byte) []byte { return old[:len(old)/2] }),
		"without its end":    write(func(old []byte) []byte { return old[:len(old)-1] }),
		"zeros":              write(func(old []byte) []byte { return make([]byte, len(old)) }),
		"changed":            write(func(old []byte) []byte { return bytes.Replace(old, []byte(`"records":`), []byte(`"records":1`), 1) }),
		"of another host":    store("another host", func(*position) {}),
		"of another sandbox": store("this host", func(p *position) { p.Sandbox = "s2" }),
		"at no line":         store("this host", func(p *position) { p.Records = -1 }),
	} {
		t.Run(name, func(t *testing.T) {
			l := longLog(t, 50)
			spoil(t, l)
			if err := reopened(l.Dir()).Append("after", nil, false); err != nil {
				t.Errorf("a log that is right: %v", err)
			}
			if got := len(chained(t, l)); got != 51 {
				t.Errorf("%d records", got)
			}
			spoil(t, l)
			change(t, l, LogName, `"i":0`, `"i":7`)
			if _, err := reopened(l.Dir()).Last(); !errors.Is(err, errs.ErrCorrupt) {
				t.Errorf("the log was not read from its beginning: %v", err)
			}
		})
	}
}

// TestALogThatWasCutOrWrittenAgainIsRefused changes a log to one that is a right log by itself, but not the one
// that was verified before: by another process, which has stored a position, and by this one.
func TestALogThatWasCutOrWrittenAgainIsRefused(t *testing.T) {
	other := longLog(t, 60)
	rewritten, err := os.ReadFile(filepath.Join(other.Dir(), LogName))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]func(old []byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"first record":   func(old []byte) []byte { return old[:bytes.IndexByte(old, '\n')+1] },
		"no last record": func(old []byte) []byte { return old[:bytes.LastIndexByte(old[:len(old)-1], '\n')+1] },
		"other records":  func([]byte) []byte { return rewritten },
	} {
		t.Run(name, func(t *testing.T) {
			l := longLog(t, 50)
			if err := l.Append("before", map[string]any{"long": strings.Repeat("x", 10_000)}, false); err != nil {
				t.Fatal(err)
			}
			stored := l.stored()
			path := filepath.Join(l.Dir(), LogName)
			old, err := os.ReadFile(path)
			if err != nil || stored.Size != int64(len(old)) {
				t.Fatalf("the stored position is %+v: %v", stored, err)
			}
			if err := os.WriteFile(path, text(bytes.Clone(old)), 0o600); err != nil {
				t.Fatal(err)
			}
			for who, log := range map[string]*Log{"this process": l, "another process": reopened(l.Dir())} {
				if err := log.Append("after", nil, false); !errors.Is(err, errs.ErrCorrupt) {
					t.Errorf("%s adds a record: %v", who, err)
				}
				if _, err := log.Last(); !errors.Is(err, errs.ErrCorrupt) {
					t.Errorf("%s reads the last record: %v", who, err)
				}
			}
			if got := reopened(l.Dir()).stored(); got != stored {
				t.Errorf("the proof was replaced: the position is %+v, and was %+v", got, stored)
			}
			// Without a stored position this process still knows what it has verified.
			if err := os.Remove(filepath.Join(l.Dir(), positionName)); err != nil {
				t.Fatal(err)
			}
			if err := l.Append("after", nil, true); !errors.Is(err, errs.ErrCorrupt) {
				t.Errorf("without a stored position: %v", err)
			}
		})
	}
}

// TestOnlyWhatIsOnStableStorageIsBeforeThePosition loses all records that were not synced, as a power failure
// does. The position was stored in the background, or when the log had grown enough.
func TestOnlyWhatIsOnStableStorageIsBeforeThePosition(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	l.sync.pause = time.Millisecond
	for i := range 40 {
		synced := make(chan error, 1)
		if err := l.AppendSoon("t", map[string]any{"i": i, "long": strings.Repeat("x", 800)}, func(err error) { synced <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-synced; err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(l.Dir(), LogName))
		if err != nil {
			t.Fatal(err)
		}
		if at := reopened(l.Dir()).stored(); st.Size()-at.Size >= 2*positionEvery {
			t.Fatalf("the log has %d bytes, and the position is at %d", st.Size(), at.Size)
		}
	}
	at := reopened(l.Dir()).stored()
	for i := range 5 { // no position is stored behind them
		if err := l.Append("lost", map[string]any{"i": i}, false); err != nil {
			t.Fatal(err)
		}
	}
	if now := reopened(l.Dir()).stored(); now != at {
		t.Fatalf("the position is %+v, and was %+v", now, at)
	}
	if err := os.Truncate(filepath.Join(l.Dir(), LogName), at.Size+20); err != nil {
		t.Fatal(err)
	}
	if err := reopened(l.Dir()).Append("after", nil, true); err != nil {
		t.Errorf("after a power failure: %v", err)
	}
	if types := chained(t, l); types[len(types)-2] != Torn {
		t.Errorf("the incomplete line is not named: %s", types)
	}
}

// TestSealVerifiesAllLines changes the first record, which is before the stored position, and then asks for a
// statement about the whole log.
func TestSealVerifiesAllLines(t *testing.T) {
	l := longLog(t, 50)
	if err := l.Seal("sealed", func(lines [][]byte, _ []Record) (map[string]any, error) {
		return map[string]any{"lines": len(lines)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	change(t, l, LogName, `"i":0`, `"i":7`)
	for who, log := range map[string]*Log{"this process": l, "another process": reopened(l.Dir())} {
		err := log.Seal("sealed", func([][]byte, []Record) (map[string]any, error) {
			t.Errorf("%s makes a statement about a changed log", who)
			return nil, nil
		})
		if !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// TestAPositionThatCannotBeStoredIsNoError puts a directory where the file belongs.
func TestAPositionThatCannotBeStoredIsNoError(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	if err := os.Mkdir(filepath.Join(l.Dir(), positionName), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := reopened(l.Dir()).Append("t", map[string]any{"long": strings.Repeat("x", 900)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(chained(t, l)); got != 50 {
		t.Errorf("%d records", got)
	}
}

// generated writes a log of n records without opening it for each.
func generated(t testing.TB, n int) *Log {
	t.Helper()
	l := newLog(t, treetest.Dir(t))
	text, prev, at := bytes.Buffer{}, FirstPrev, time.Unix(1700000000, 0).UTC()
	for i := range n {
		line := fmt.Appendf(nil, `{"boot":"5e1ec7ed-5e1e-4c7e-a5e1-ec7ed5e1ec7e","data":{"host":"h%d.example.org","port":443},"prev":"%s","sandbox":"s1","seq":%d,"time":"%s","type":"snapfs.network.refused","up":%d}`,
			i%50, prev, i, at.Add(time.Duration(i)*time.Millisecond).Format(time.RFC3339Nano), i)
		prev = Digest(line)
		text.Write(line)
		text.WriteByte('\n')
	}
	if err := os.WriteFile(filepath.Join(l.Dir(), LogName), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestALogOfAMillionRecordsOpensAtOnce opens it without a stored position, and with one.
func TestALogOfAMillionRecordsOpensAtOnce(t *testing.T) {
	n := treetest.Budget(t, 20_000, 1_000_000)
	l := generated(t, n)
	open := func() (took time.Duration, lines int64) {
		runtime.GC() // of what was before
		mine := reopened(l.Dir())
		from := processor(t)
		if r, err := mine.Last(); err != nil || r.Seq < int64(n)-1 {
			t.Fatalf("the last record is number %d, %v", r.Seq, err)
		}
		return processor(t) - from, mine.parsed
	}
	whole, all := open()
	if err := reopened(l.Dir()).Append("t", nil, true); err != nil { // stores the position
		t.Fatal(err)
	}
	rest, lines := open()
	t.Logf("%d records open in %v, and from the stored position in %v, both on processors", n, whole, rest)
	if all != int64(n) || lines != 1 {
		t.Errorf("%d lines were read, and from the stored position, at the last one, %d", all, lines)
	}
	if n >= 1_000_000 && rest > whole/4 { // fewer records take too short to compare
		t.Errorf("from the stored position %v, the whole log %v", rest, whole)
	}
	change(t, l, LogName, `"host":"h0.`, `"host":"h1.`)
	open() // it reads nothing of that
}

// BenchmarkOpenAndAppend appends as a new process does each time, in time on processors.
func BenchmarkOpenAndAppend(b *testing.B) {
	l := newLog(b, treetest.Dir(b))
	from := processor(b)
	for b.Loop() {
		if err := reopened(l.Dir()).Append("t", map[string]any{"run": "one", "status": 0}, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processor(b)-from).Microseconds())/float64(b.N), "cpu-us/op")
}

// processor returns the time that this process has used on processors.
func processor(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}
