package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

func newLog(t testing.TB, dir string) *Log {
	l := reopened(filepath.Join(dir, "s1"))
	if err := l.Create(); err != nil {
		t.Fatal(err)
	}
	return l
}

// chained checks the chain of a log and returns the types of its records.
func chained(t testing.TB, l *Log) (types []string) {
	t.Helper()
	lines, torn, err := l.Lines()
	if err != nil || torn > 0 {
		t.Fatalf("%d bytes of an incomplete line, %v", torn, err)
	}
	prev := FirstPrev
	for i, line := range lines {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil || !IsCanonical(line) {
			t.Fatalf("line %d is no canonical record: %v: %s", i, err, line)
		}
		if r.Seq != int64(i) || r.Prev != prev {
			t.Fatalf("line %d has the number %d, or does not follow", i, r.Seq)
		}
		prev = Digest(line)
		types = append(types, r.Type)
	}
	return types
}

func TestManyWritersMakeOneChain(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			mine := reopened(l.Dir())
			for j := range 50 {
				if err := mine.Append("t", map[string]any{"i": i, "j": j}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := len(chained(t, l)); got != 400 {
		t.Errorf("%d records", got)
	}
}

// TestAKilledWriterLeavesAChain kills a process that appends, wherever it is, and goes on.
func TestAKilledWriterLeavesAChain(t *testing.T) {
	if dir := os.Getenv("SNAPFS_TEST_APPEND"); dir != "" {
		for l := reopened(dir); ; {
			if err := l.Append("killed", map[string]any{"long": strings.Repeat("x", 3000)}, true); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stdout.WriteString("appended\n"); err != nil {
				return // nobody listens any more
			}
		}
	}
	l := newLog(t, treetest.Dir(t))
	for range 5 {
		writer := exec.Command(os.Args[0], "-test.run", "^TestAKilledWriterLeavesAChain$")
		writer.Env = append(os.Environ(), "SNAPFS_TEST_APPEND="+l.Dir())
		out, err := writer.StdoutPipe()
		if err == nil {
			err = writer.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 {
			if !lines.Scan() {
				t.Fatal("the writer has ended by itself")
			}
		}
		_ = writer.Process.Kill() // it runs until then
		_ = writer.Wait()         // it was killed
		if err := l.Append("after", nil, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(chained(t, l)); got < 20 {
		t.Errorf("%d records; the writers had appended 15, and this process 5", got)
	}
}

// TestATornLineIsNamed cuts a log at every byte of its last record, as a killed writer may leave it.
func TestATornLineIsNamed(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	for range 2 {
		if err := l.Append("before", map[string]any{"long": strings.Repeat("x", 600)}, true); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(l.Dir(), LogName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := strings.Index(string(text), "\n") + 1
	for at := last; at < len(text); at += 7 {
		if err := os.WriteFile(path, text[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Append("after", nil, true); err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
		want := "[before snapfs.evidence.torn after]"
		if at == last {
			want = "[before after]"
		}
		if got := fmt.Sprint(chained(t, l)); got != want {
			t.Fatalf("cut at %d: %s; want %s", at, got, want)
		}
	}
}

func TestADamagedLogRefuses(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	if err := l.Append("before", nil, true); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.Dir(), LogName)
	for _, damage := range []string{"no record\n", `{"sandbox":"s2","seq":1}` + "\n", "\n"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, damage...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Append("after", nil, true); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("after %q: %v", damage, err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullDiskRefusesAndKeepsTheLog(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Tmpfs(t, "256k")
	l := newLog(t, dir)
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = l.Append("t", map[string]any{"long": strings.Repeat("x", 5000)}, true)
	}
	if !errors.Is(err, errs.ErrNoSpace) {
		t.Fatalf("append %d: %v", n, err)
	}
	if got := len(chained(t, l)); got != n-1 {
		t.Errorf("%d records are left, want %d", got, n-1)
	}
}

// TestALogAtItsBoundHasNoRoom: an act is refused, and the record of what has happened anyway is still written.
func TestALogAtItsBoundHasNoRoom(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	l.most = 2000
	n := 0
	for ; l.Room() == nil && n < 1000; n++ {
		if err := l.Append("t", map[string]any{"i": n}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Room(); !errors.Is(err, errs.ErrNoSpace) || n < 2 || n > 20 {
		t.Fatalf("after %d records: %v", n, err)
	}
	if err := l.Append("after", nil, true); err != nil {
		t.Error(err)
	}
	if got := len(chained(t, l)); got != n+1 {
		t.Errorf("%d records, want %d", got, n+1)
	}
}

// TestTheEndOfACommandFitsOnAFullDisk fills the disk after the start of a command is recorded.
func TestTheEndOfACommandFitsOnAFullDisk(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Tmpfs(t, "512k")
	l := newLog(t, dir)
	if err := l.Room(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append("started", nil, true); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	for block := make([]byte, 4096); err == nil; {
		_, err = fill.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := l.Append("ended", map[string]any{"long": strings.Repeat("x", 3000)}, true); err != nil {
			t.Fatalf("the record of an end was lost: %v", err)
		}
	}
	acts := 0
	for ; acts < 100; acts++ {
		if err = l.Room(); err != nil {
			break
		}
		if err := l.Append("started", map[string]any{"long": strings.Repeat("x", 3000)}, true); err != nil {
			t.Fatalf("an act was not refused, and its record was lost: %v", err)
		}
	}
	if !errors.Is(err, errs.ErrNoSpace) {
		t.Errorf("%d acts, then %v", acts, err)
	}
	if got := len(chained(t, l)); got != 9+acts {
		t.Errorf("%d records, want %d", got, 9+acts)
	}
}

func TestATextIsShownByItsSaltOnly(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	digests, err := l.Redact([]string{"secret", "secret", "other"})
	if err != nil {
		t.Fatal(err)
	}
	if digests[0] == digests[1] {
		t.Error("two equal texts have one digest: the salt does not hide that")
	}
	found, err := l.Matches("secret")
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, m := range found {
		if m.Digest == digests[0] || m.Digest == digests[1] {
			held++
		}
		if m.Digest == digests[2] || SaltedDigest(m.Salt, "secret") != m.Digest {
			t.Errorf("%v matches another text", m)
		}
	}
	if held != 2 {
		t.Errorf("%d of 2 digests were found again", held)
	}
	stored, err := os.ReadFile(filepath.Join(l.Dir(), saltsName))
	if err != nil || strings.Contains(string(stored), "secret\"") && strings.Contains(string(stored), "other") {
		t.Errorf("the salts hold a text: %s, %v", stored, err)
	}
}

// TestALineOfSaltsThatIsIncompleteHidesNoOther leaves half a line, as a full disk does.
func TestALineOfSaltsThatIsIncompleteHidesNoOther(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	path := filepath.Join(l.Dir(), saltsName)
	if err := os.WriteFile(path, []byte(`{"secret":"AB`), 0o600); err != nil {
		t.Fatal(err)
	}
	digests, err := l.Redact([]string{"text"})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := l.Matches("text"); err != nil || len(found) != 1 || found[0].Digest != digests[0] {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestTreesContinue checks proofs between trees of every size up to 20.
func TestTreesContinue(t *testing.T) {
	var lines [][]byte
	for i := range 20 {
		lines = append(lines, fmt.Append(nil, i))
	}
	whole, err := TreeOf(lines)
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 20; n++ {
		root, err := whole.Root(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := whole.Continues(n, root); err != nil {
			t.Errorf("%d: %v", n, err)
		}
		root[0] ^= 1
		if whole.Continues(n, root) == nil {
			t.Errorf("%d: another root is accepted", n)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	l := newLog(b, treetest.Dir(b))
	for b.Loop() {
		if err := l.Append("t", map[string]any{"run": "one", "status": 0}, false); err != nil {
			b.Fatal(err)
		}
	}
}
