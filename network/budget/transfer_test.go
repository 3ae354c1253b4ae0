package budget

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatAnotherMachineUsedCountsOnce(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	use := func(dir string, n int64) *Ledger {
		t.Helper()
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		r, over, err := l.Reserve(Count{Requests: 1, Tokens: n})
		if over != nil || err != nil {
			t.Fatal(over, err)
		}
		if err := r.Settle("m", Count{Requests: 1, Tokens: n}, false); err != nil {
			t.Fatal(err)
		}
		return l
	}
	carry := func(from, to string) Exported {
		t.Helper()
		x, err := Export(from)
		if err == nil {
			err = Import(to, x)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	want := func(dir string, n int64) {
		t.Helper()
		if s, err := Read(dir); err != nil || s.Used.Tokens != n {
			t.Errorf("%+v, %v; want %d tokens", s, err, n)
		}
	}
	if err := SetLimits(here, Count{Tokens: 1000}); err != nil {
		t.Fatal(err)
	}
	open := use(here, 100)
	old := carry(here, there)
	want(there, 100)
	use(there, 30)
	carry(there, here)
	carry(there, here)
	want(here, 130)
	if _, over, err := open.Reserve(Count{Tokens: 871}); over == nil || over.Used != 130 || err != nil { // by an open ledger, too
		t.Errorf("%+v, %v", over, err)
	}
	if _, over, err := open.Reserve(Count{Tokens: 70}); over != nil || err != nil {
		t.Fatal(over, err)
	}
	carry(here, there)                         // with what is reserved
	if err := Import(there, old); err != nil { // an older stream arrives late
		t.Fatal(err)
	}
	want(there, 200)
	again, err := Open(here) // killed, and it is compacted
	if err != nil {
		t.Fatal(err)
	}
	again.Close() //nolint:errcheck // a test
	want(here, 200)
	if x := carry(here, there); x.Ledger != old.Ledger || x.Used[x.Ledger]["tokens"] != 170 {
		t.Errorf("%+v", x)
	}
	want(there, 200)
}

func TestInvalidAmountsOfAStreamAreRefused(t *testing.T) {
	dir, id := t.TempDir(), strings.Repeat("A", identityLength)
	for _, used := range []map[string]map[string]int64{
		{id: {"tokens": -1}}, {id: {"tokens": maxExported + 1}}, {id: {"nonsense": 1}}, {"": {"tokens": 1}}, {id: {"tokens": 1}, id + "A": {}},
	} {
		if err := Import(dir, Exported{Used: used}); err == nil {
			t.Errorf("%v was counted", used)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, ledgerFile)); len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
