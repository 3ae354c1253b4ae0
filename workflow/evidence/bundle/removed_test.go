package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// removal adds the statement about the records before number next, which text leaves out then. records are all records
// of the session.
func (s *session) removal(next int64, keep ...int64) {
	s.t.Helper()
	records, bad := audit.ParseAll(s.records)
	if bad >= 0 {
		s.t.Fatalf("record %d", bad)
	}
	r, _, err := RemovalOf(s.records, records, nil, next, keep)
	if err != nil {
		s.t.Fatal(err)
	}
	line, _, err := s.key.Sign(statement.Statement{PredicateType: statement.RemovalType, Predicate: map[string]any{
		"sandbox": s.id, "log": map[string]any{"size": len(s.records), "root": fmt.Sprintf("%x", s.root())},
		"removed": r, "rule": "records=5", "by": map[string]any{"user": "ada"}, "time": "2026-01-02T03:04:05Z",
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.add(audit.RecordsRemoved, map[string]any{"statement": string(line)})
}

// without returns the bundle without the records from number 2 to before next.
func (s *session) without(next int64) []byte {
	s.t.Helper()
	s.text()
	s.b.Records = slices.Concat(s.records[:audit.Opening], s.records[next:])
	text, err := s.b.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// long is a session with enough records to remove some; the records before number 9 are removed.
func long(s *session, end bool) *session {
	s.begin()
	s.add(events.SelfTested, map[string]any{"passed": 3})
	for _, run := range []string{"one", "two", "three"} {
		s.command(run)
	}
	s.add(events.CommandStarted, map[string]any{"run": "across"}) // record 9
	s.add(events.CommandEnded, map[string]any{"run": "across", "status": 0})
	s.removal(10, 5)
	s.command("four")
	s.changes("/w/a", "/w/b")
	if end {
		s.end()
	}
	return s
}

const reduced = "yes yes removed yes"

// removedFaults is faults, with the name of a removal under a rule in the place of its "yes".
func removedFaults(r Report) string {
	words := strings.Fields(faults(r))
	if v := r.Verdicts[2]; v.Result == "yes" && v.Fault == Removed {
		words[2] = Removed
	}
	return strings.Join(words, " ")
}

// TestARemovalUnderARuleIsNamed verifies bundles without their oldest records, with both verifiers.
func TestARemovalUnderARuleIsNamed(t *testing.T) {
	key, other := hostKey(t), hostKey(t)
	resign := func(s *session, by *statement.Key, change func(r *audit.Removed, p map[string]any)) []byte {
		records, _ := audit.ParseAll(s.records)
		r, at, err := audit.RemovedIn(records)
		if err != nil {
			t.Fatal(err)
		}
		st, _, err := statement.Open(records[at].Statement(), key.Public())
		if err != nil {
			t.Fatal(err)
		}
		change(r, st.Predicate)
		st.Predicate["removed"] = r
		line, _, err := by.Sign(st)
		if err != nil {
			t.Fatal(err)
		}
		// The chain is written again behind it, as one without the key of the start could.
		s.records = s.records[:at]
		s.add(audit.RecordsRemoved, map[string]any{"statement": string(line)})
		return s.without(10)
	}
	cases := []struct {
		name, want string
		make       func() []byte
	}{
		{"removed", reduced, func() []byte { return long(newSession(t, key, "s1"), true).without(10) }},
		{"stated and not removed", good, func() []byte { return long(newSession(t, key, "s1"), true).text() }},
		{"removed after the end", reduced, func() []byte {
			s := newSession(t, key, "s1")
			s.begin()
			for _, run := range []string{"one", "two", "three", "four"} {
				s.command(run)
			}
			s.end()
			s.removal(6)
			return s.without(6)
		}},
		{"a command across the removal without an end", "yes yes no-result yes", func() []byte {
			s := newSession(t, key, "s1")
			s.begin()
			s.command("one")
			s.add(events.CommandStarted, map[string]any{"run": "lost"})
			s.removal(5)
			s.end()
			return s.without(5)
		}},
		{"a breach in the removed records", "yes yes removed network", func() []byte {
			s := newSession(t, key, "s1")
			s.begin()
			s.add(events.NetworkAllowed, map[string]any{"host": "example.com"})
			s.removal(3)
			s.end()
			return s.without(3)
		}},
		{"statement dropped", "dropped not-run not-run not-run", func() []byte {
			s := whole(t, key, "s1")
			return s.without(6)
		}},
		{"range widened", "dropped not-run not-run not-run", func() []byte { return long(newSession(t, key, "s1"), true).without(11) }},
		{"another range removed", "order not-run not-run not-run", func() []byte {
			s := long(newSession(t, key, "s1"), true)
			s.text()
			s.b.Records = slices.Delete(slices.Clone(s.records), 3, 10)
			text, err := s.b.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return text
		}},
		{"statement of another key", "statement not-run not-run not-run", func() []byte {
			return resign(long(newSession(t, key, "s1"), false), other, func(*audit.Removed, map[string]any) {})
		}},
		{"statement with another hash", "checkpoint not-run not-run not-run", func() []byte {
			return resign(long(newSession(t, key, "s1"), false), key, func(r *audit.Removed, _ map[string]any) { r.Hashes[1] = r.Hashes[0] })
		}},
		{"statement of another session", "session not-run not-run not-run", func() []byte {
			return resign(long(newSession(t, key, "s1"), false), key, func(_ *audit.Removed, p map[string]any) { p["sandbox"] = "s2" })
		}},
	}
	dir := treetest.Dir(t)
	var python []string
	for _, c := range cases {
		text := c.make()
		r := Verify(text, Options{Key: key.Public()})
		if got := removedFaults(r); got != c.want {
			t.Errorf("%s: %s; want %s: %+v", c.name, got, c.want, r.Verdicts)
		}
		path := filepath.Join(dir, strings.ReplaceAll(c.name, " ", "-"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		python = append(python, path)
	}
	for i, got := range verifyInPython(t, key.Public(), python) {
		if got != cases[i].want {
			t.Errorf("%s in Python: %s; want %s", cases[i].name, got, cases[i].want)
		}
	}
}

// TestABundleAfterARemovalContinuesEarlierOnes compares it with an earlier bundle whose size is among those kept, and
// with one whose size is not, which cannot be compared.
func TestABundleAfterARemovalContinuesEarlierOnes(t *testing.T) {
	key := hostKey(t)
	at := func(n int) []byte {
		s := long(newSession(t, key, "s1"), true)
		s.records = s.records[:n]
		s.b.Statements, s.b.Manifests = s.b.Statements[:1], nil
		return s.text()
	}
	later := long(newSession(t, key, "s1"), true).without(10)
	for n, want := range map[int]string{5: reduced, 10: reduced, 12: reduced, 7: "earlier not-run not-run not-run"} {
		if got := removedFaults(Verify(later, Options{Key: key.Public(), Earlier: at(n)})); got != want {
			t.Errorf("an earlier bundle of %d records: %s; want %s", n, got, want)
		}
	}
	other := newSession(t, key, "s1")
	other.begin()
	other.command("other")
	other.add(events.NetworkRefused, nil)
	if got := removedFaults(Verify(later, Options{Key: key.Public(), Earlier: other.text()})); !strings.HasPrefix(got, "rewritten") {
		t.Errorf("another log: %s", got)
	}
	if r, err := Reveal(later, "/w/b"); err != nil || r.Check() != nil {
		t.Errorf("a revealed file: %v, %v", err, r.Check())
	}
}

// TestNoMutationOfAReducedBundleIsMissed changes a bundle without its oldest records at random.
func TestNoMutationOfAReducedBundleIsMissed(t *testing.T) {
	mutations, compared := 300, 60
	if treetest.Long(t) {
		mutations, compared = 10_000, 1000
	}
	key := hostKey(t)
	text, other := long(newSession(t, key, "s1"), true).without(10), long(newSession(t, key, "s2"), true).without(10)
	dir := treetest.Dir(t)
	var paths, want []string
	for i := range mutations {
		changed, how := mutate(uint64(i), text, other)
		if string(changed) == string(text) {
			continue
		}
		got := removedFaults(Verify(changed, Options{Key: key.Public()}))
		if got == reduced || got == good {
			t.Fatalf("mutation %d (%s) is missed: %s", i, how, got)
		}
		if i%(mutations/compared) == 0 {
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			paths, want = append(paths, path), append(want, got)
		}
	}
	for i, got := range verifyInPython(t, key.Public(), paths) {
		if yes(got) != yes(want[i]) {
			t.Errorf("mutation %s: %s in Python, %s in Go", filepath.Base(paths[i]), got, want[i])
		}
	}
}
