package bundle

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// twiceCosigned returns a bundle that customer has cosigned at the start and at the end, and witness at the end only.
func twiceCosigned(t testing.TB, key, customer, witness *statement.Key, id string) []byte {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)
	s := newSession(t, key, id)
	s.begin()
	first, err := Countersign(s.text(), customer, now)
	if err != nil {
		t.Fatal(err)
	}
	early, err := Decode(first)
	if err != nil {
		t.Fatal(err)
	}
	s.command("one")
	s.changes("/w/a", "/w/b")
	s.end()
	s.b.Cosigned, s.b.Witnesses = early.Cosigned, early.Witnesses
	text := s.text()
	for _, by := range []*statement.Key{customer, witness} {
		if text, err = Countersign(text, by, now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

// renamed returns the bundle in text with the last cosignature by key under a second name, too, as if another witness
// had cosigned it.
func renamed(t testing.TB, text []byte, key *statement.Key) []byte {
	t.Helper()
	b, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	first, second := statement.NewWitness(key.Public()), statement.Witness{Name: "second", Key: key.Public()}
	for _, line := range strings.Split(string(b.Cosigned[len(b.Cosigned)-1].Checkpoint), "\n") {
		encoded, found := strings.CutPrefix(line, "— "+first.Name+" ")
		if !found {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		_, digits, _ := strings.Cut(second.String(), "+")
		short, err := hex.DecodeString(digits[:8])
		if err != nil {
			t.Fatal(err)
		}
		last := &b.Cosigned[len(b.Cosigned)-1]
		last.Checkpoint = append(last.Checkpoint, "— "+second.Name+" "+base64.StdEncoding.EncodeToString(append(short, raw[4:]...))+"\n"...)
	}
	b.Witnesses = append(b.Witnesses, second)
	out, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestACosignatureIsOfOneLogAndOneKey verifies bundles with cosignatures, with both verifiers.
func TestACosignatureIsOfOneLogAndOneKey(t *testing.T) {
	key, customer, witness, other := hostKey(t), hostKey(t), hostKey(t), hostKey(t)
	by := func(keys ...*statement.Key) (all []statement.Witness) {
		for _, k := range keys {
			all = append(all, statement.Witness{Name: "any", Key: k.Public()})
		}
		return all
	}
	text := twiceCosigned(t, key, customer, witness, "s1")
	s := newSession(t, key, "s1")
	s.begin()
	early, err := Countersign(s.text(), customer, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Decode(early)
	if err != nil {
		t.Fatal(err)
	}
	s.command("one")
	s.end()
	s.b.Cosigned, s.b.Witnesses = b.Cosigned, b.Witnesses
	start := s.text()
	again := newSession(t, key, "s1")
	again.up++
	again.begin()
	again.command("other")
	again.end()
	again.b.Cosigned, again.b.Witnesses = b.Cosigned, b.Witnesses
	swap := []byte(strings.Replace(string(text), statement.NewWitness(witness.Public()).String(), statement.NewWitness(other.Public()).String(), 1))
	dir := treetest.Dir(t)
	var paths, want []string
	for i, c := range []struct {
		name, want string
		text       []byte
		witnesses  []statement.Witness
		least      int
	}{
		{"no witness required", good, text, nil, 0},
		{"both", good, text, by(customer, witness), 0},
		{"another", "yes witness yes yes", text, by(customer, other), 0},
		{"one of two", good, text, by(customer, other), 1},
		{"the start only", "yes witness yes yes", start, by(customer), 0},
		{"none in the bundle", "yes witness yes yes", whole(t, key, "s1").text(), by(customer), 0},
		{"a log that was written again", "cosignature not-run not-run not-run", again.text(), nil, 0},
		{"one key under two names", "yes witness yes yes", renamed(t, text, customer), by(customer, other), 2},
		{"one key required twice", good, text, by(customer, customer), 0},
		{"another witness's key", "cosignature not-run not-run not-run", swap, nil, 0},
	} {
		got := faults(Verify(c.text, Options{Key: key.Public(), Witnesses: c.witnesses, Least: c.least}))
		if got != c.want {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if c.witnesses == nil {
			paths, want = append(paths, path), append(want, got)
		}
	}
	for i, got := range verifyInPython(t, key.Public(), paths) {
		if got != want[i] {
			t.Errorf("%s in Python: %s; in Go %s", filepath.Base(paths[i]), got, want[i])
		}
	}
}

// TestNoMutationOfACosignedBundleIsMissed changes a bundle with cosignatures at random.
func TestNoMutationOfACosignedBundleIsMissed(t *testing.T) {
	mutations, compared := 300, 60
	if treetest.Long(t) {
		mutations, compared = 10_000, 500
	}
	key, customer, witness := hostKey(t), hostKey(t), hostKey(t)
	text, other := twiceCosigned(t, key, customer, witness, "s1"), twiceCosigned(t, key, customer, witness, "s2")
	dir := treetest.Dir(t)
	var paths, want []string
	for i := range mutations {
		changed, how := mutate(uint64(i), text, other)
		if string(changed) == string(text) {
			continue
		}
		got := faults(Verify(changed, Options{Key: key.Public()}))
		if got == good {
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
