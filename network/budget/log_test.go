package budget

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pair returns two open ledgers that share a file, and their directories.
func pair(t *testing.T) (ledgers [2]*Ledger, dirs [2]string) {
	t.Helper()
	for i := range dirs {
		dirs[i] = t.TempDir()
		if i == 1 {
			if err := Share(dirs[0], dirs[1]); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if ledgers[i], err = Open(dirs[i]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ledgers[i].Close() })
	}
	return ledgers, dirs
}

func reserve(t *testing.T, l *Ledger, worst Count) *Reservation {
	t.Helper()
	r, over, err := l.Reserve(worst)
	if over != nil || err != nil {
		t.Fatal(over, err)
	}
	return r
}

// The file that a sandbox shares with its forks stays small however many requests they send, and every ledger goes on
// counting all of them.
func TestASharedFileIsCompactedWhileItIsOpen(t *testing.T) {
	ledgers, dirs := pair(t)
	path := filepath.Join(dirs[0], ledgerFile)
	mine := reserve(t, ledgers[0], Count{Tokens: 7})
	if over, err := mine.Extend(Count{Sent: 5}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	const rounds, run = 5200, 1300 // meanwhile the other one reads nothing, and the file grows beyond what it has read
	var largest, settled int64
	for i := range int64(rounds) {
		l := ledgers[(i/run)%2]
		if err := reserve(t, l, Count{Requests: 1, Tokens: 30}).Settle("m", Count{Requests: 1, Tokens: i % 30}, false); err != nil {
			t.Fatal(err)
		}
		settled += i % 30
		largest = max(largest, l.log.size)
	}
	if largest > minCompact+1024 || ledgers[0].tally.compacted < 2 {
		t.Errorf("the file grew to %d bytes, and was compacted %d times", largest, ledgers[0].tally.compacted)
	}
	for i, l := range ledgers {
		reserve(t, l, Count{Input: 1}) // reads what the other appended
		s, err := Read(dirs[i])
		if err != nil || s.Used.Tokens != settled || s.Models["m"].Requests != rounds || s.Reserved != (Count{Tokens: 7, Sent: 5, Input: int64(i + 1)}) {
			t.Errorf("%+v, %v; want %d tokens", s, err, settled)
		}
		if l.tally.state.Used != s.Used || l.tally.state.Reserved != s.Reserved {
			t.Errorf("the open ledger counts %+v, and the file has %+v", l.tally.state, s)
		}
	}
	if is, err := os.Stat(path); err != nil || !os.SameFile(was, is) {
		t.Errorf("another file, %v", err)
	}
	if err := mine.Settle("", Count{Tokens: 1}, false); err != nil {
		t.Fatal(err)
	}
	if s, err := Read(dirs[1]); err != nil || s.Reserved != (Count{Input: 2}) || s.Used.Tokens != settled+1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// What a request was extended by before there was a fork stays reserved when the fork compacts the file.
func TestACompactionKeepsExtendedReservations(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	l, err := Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mine := reserve(t, l, Count{Tokens: 7})
	if over, err := mine.Extend(Count{Sent: 5}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	if err := Share(from, to); err != nil {
		t.Fatal(err)
	}
	fork, err := Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	for range 20 {
		if err := reserve(t, fork, Count{Tokens: 1}).Settle("", Count{Tokens: 1}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := fork.withFileLock(fork.compact); err != nil {
		t.Fatal(err)
	}
	reserve(t, l, Count{Input: 1})
	if got := l.tally.state; got.Reserved != (Count{Tokens: 7, Sent: 5, Input: 1}) || got.Used.Tokens != 20 || l.tally.compacted != 1 {
		t.Errorf("%+v", got)
	}
}

// Whichever bytes of a compaction are in the file when its process is killed, the file counts the same.
func TestAKilledCompactionCountsTheSame(t *testing.T) {
	ledgers, dirs := pair(t)
	l := ledgers[0]
	reserve(t, ledgers[1], Count{Requests: 1, Tokens: 9, Sent: 3})
	for range 20 {
		if err := reserve(t, l, Count{Tokens: 30}).Settle("m", Count{Tokens: 4}, true); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dirs[0], ledgerFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Read(dirs[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := l.withFileLock(l.compact); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil || len(after) >= len(before) || len(l.tally.open) != 1 {
		t.Fatalf("%d bytes after %d, %v", len(after), len(before), err)
	}
	check := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Read(dirs[1])
		if err != nil || s.Used != want.Used || s.Reserved != want.Reserved || s.Estimated != want.Estimated || !maps.Equal(s.Models, want.Models) {
			t.Fatalf("%q counts %+v, %v; want %+v", text, s, err, want)
		}
	}
	for n := range after {
		check(slices.Concat(before, after[:n])) // in the middle of the line at the end
		check(slices.Concat(after[:n], before[n:], after))
	}
	check(slices.Concat(after, before[len(after):], after))
	check(after)
	var first line
	if err := json.Unmarshal(after, &first); err != nil || first.Compacted != 1 {
		t.Errorf("%+v, %v", first, err)
	}
}

// TestALedgerOfANewerFormatIsRefused: a program that does not know how to count a line sends no request, also after it
// has counted others. Nothing is written to the file.
func TestALedgerOfANewerFormatIsRefused(t *testing.T) {
	ledgers, dirs := pair(t)
	for _, l := range ledgers {
		if err := reserve(t, l, Count{Tokens: 7}).Settle("", Count{Tokens: 7}, false); err != nil {
			t.Fatal(err)
		}
	}
	ledgers[0].mu.Lock()
	if err := errors.Join(ledgers[0].log.lock(), ledgers[0].catchUp(), ledgers[0].compact(), ledgers[0].log.unlock()); err != nil {
		t.Fatal(err)
	}
	ledgers[0].mu.Unlock()
	path := filepath.Join(dirs[0], ledgerFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"compacted":1,"format":2,`; !strings.HasPrefix(string(text), want) {
		t.Fatalf("a compacted file begins with %.40q, want %q", text, want)
	}
	if s, err := Read(dirs[1]); err != nil || s.Used.Tokens != 14 {
		t.Fatalf("of the compacted file %d tokens are used, %v", s.Used.Tokens, err)
	}
	for _, newer := range []string{strings.Replace(string(text), `"format":2`, `"format":3`, 1), string(text) + `{"format":3,"id":"x"}` + "\n"} {
		if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, over, err := ledgers[1].Reserve(Count{Tokens: 1}); over != nil || err == nil || !strings.Contains(err.Error(), "newer snapfs (format 3, this one supports 2)") {
				t.Errorf("a ledger of a newer format reserves: %v, %v", over, err)
			}
		}
		if s, err := Read(dirs[1]); err == nil {
			t.Errorf("a ledger of a newer format is read: %+v", s)
		}
		if l, err := Open(dirs[1]); err == nil {
			t.Error("a ledger of a newer format is opened", l.Close())
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != newer {
			t.Errorf("the file was changed: %q, %v", now, err)
		}
	}
}
