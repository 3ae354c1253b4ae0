package egress

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network/budget"
)

// A stream is not trusted: its budget can only make that of the receiver stricter.
func TestABudgetOfAStreamOnlyTightens(t *testing.T) {
	cat, err := catalog.Open(filepath.Join(treetest.Dir(t), "state"))
	if err != nil {
		t.Fatal(err)
	}
	eg := &Gateway{Catalog: cat}
	id := "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	rec := func(name string) *catalog.Record {
		t.Helper()
		if err := os.MkdirAll(cat.Path(name), 0o700); err != nil {
			t.Fatal(err)
		}
		return &catalog.Record{Name: name, Policy: catalog.Policy{Network: "allow:example.com", Budget: &catalog.Budget{Tokens: 100, Requests: 7}}}
	}
	used := map[string]map[string]int64{id: {"tokens": 30}}
	for name, sent := range map[string]*catalog.SentBudget{
		"a negative limit": {Limits: catalog.Budget{Tokens: -1}, Ledger: id, Used: used},
		"a negative price": {Limits: catalog.Budget{Prices: []catalog.ModelPrice{{Model: "m", Input: -5}}}, Ledger: id, Used: used},
		"a negative use":   {Ledger: id, Used: map[string]map[string]int64{id: {"tokens": -30}}},
		"no use":           {Ledger: id},
	} {
		r := rec("bad")
		if err := eg.ReceiveBudget(r, sent); !errors.Is(err, errs.ErrCorrupt) || r.Policy.Budget.Tokens != 100 || budget.HasLimits(cat.Path("bad")) {
			t.Errorf("%s: %v, %+v", name, err, r.Policy.Budget)
		}
	}
	r := rec("good")
	if err := eg.ReceiveBudget(r, &catalog.SentBudget{Limits: catalog.Budget{Tokens: 50, Requests: 1 << 40, BytesSent: 9, Hosts: []string{"m.example"}}, Ledger: id, Used: used}); err != nil {
		t.Fatal(err)
	}
	s, err := budget.Read(cat.Path("good"))
	if want := (budget.Count{Tokens: 50, Requests: 7, Sent: 9}); err != nil || s.Limits != want || s.Used.Tokens != 30 || len(r.Policy.Budget.Hosts) != 1 {
		t.Errorf("%+v, %v; want the limits %+v", s, err, want)
	}
	sent, err := eg.SendBudget(r)
	if err != nil || sent.Used[id]["tokens"] != 30 || len(sent.Used) != 2 || sent.Limits.Tokens != 50 {
		t.Errorf("%+v, %v", sent, err)
	}
	if sent, err := eg.SendBudget(&catalog.Record{Name: "none"}); sent != nil || err != nil {
		t.Errorf("%+v, %v", sent, err)
	}
}

// TestADamagedBudgetPreventsOnlyItsOwnTransfer: of three sandboxes the limits of one are damaged, and the ledger of
// another cannot be read. A stream of a fourth arrives, and shares the ledger of that. One of the first is refused.
func TestADamagedBudgetPreventsOnlyItsOwnTransfer(t *testing.T) {
	cat, err := catalog.Open(filepath.Join(treetest.Dir(t), "state"))
	must(t, err)
	eg := &Gateway{Catalog: cat}
	sent := map[string]*catalog.SentBudget{}
	for _, name := range []string{"a-limits", "b-ledger", "whole"} { // in the order in which they are looked at
		r := &catalog.Record{ID: "t" + name, Name: name, Created: time.Now(), Policy: catalog.Policy{Network: "allow:example.com", Budget: &catalog.Budget{Tokens: 100}}}
		must(t, cat.Create(r))
		must(t, budget.SetLimits(cat.Path(name), budget.Count{Tokens: 100}))
		sent[name], err = eg.SendBudget(r)
		must(t, err)
	}
	must(t, os.WriteFile(cat.Path("a-limits")+"/budget.json", []byte("{"), 0o600))
	must(t, os.Remove(cat.Path("b-ledger")+"/budget.jsonl"))
	must(t, os.Mkdir(cat.Path("b-ledger")+"/budget.jsonl", 0o700))
	receive := func(name, of string) error {
		must(t, os.MkdirAll(cat.Path(name), 0o700))
		return eg.ReceiveBudget(&catalog.Record{Name: name, Policy: catalog.Policy{Network: "allow:example.com", Budget: &catalog.Budget{Tokens: 100}}}, sent[of])
	}
	must(t, receive("copy", "whole"))
	if s, err := budget.Read(cat.Path("copy")); err != nil || !s.Shared {
		t.Errorf("the received sandbox shares no ledger: %+v, %v", s, err)
	}
	if err := receive("refused", "a-limits"); err == nil {
		t.Error("a sandbox with damaged limits shares its budget")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
