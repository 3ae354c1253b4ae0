package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network/budget"
	"github.com/snapfs/snapfs/workflow/transfer"
)

// newWith makes a sandbox with a budget, as it is after its first start.
func (b *bench) newWith(name string, limits *catalog.Budget) {
	b.t.Helper()
	req := b.request()
	req.Name, req.Policy.Network, req.Policy.Budget = name, "allow:example.com", limits
	_, err := b.New(b.t.Context(), req)
	if err == nil {
		err = budget.SetLimits(b.Catalog().Path(name), budget.Count{Tokens: limits.Tokens})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.removeLater(name)
}

// use has the ledger of a sandbox count the tokens of a request.
func (b *bench) use(name string, tokens int64) {
	b.t.Helper()
	l, err := budget.Open(b.Catalog().Path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	r, over, err := l.Reserve(budget.Count{Requests: 1, Tokens: tokens})
	if over != nil || err != nil {
		b.t.Fatal(over, err)
	}
	if err := r.Settle("m", budget.Count{Requests: 1, Tokens: tokens}, false); err != nil {
		b.t.Fatal(err)
	}
}

// uses compares how many tokens of which limit the sandbox has used.
func (b *bench) uses(name string, used, limit int64) {
	b.t.Helper()
	s, err := budget.Read(b.Catalog().Path(name))
	if err != nil || s.Used.Tokens != used || s.Limits.Tokens != limit {
		b.t.Errorf("%s: %d tokens of %d are used, %v; want %d of %d", name, s.Used.Tokens, s.Limits.Tokens, err, used, limit)
	}
}

// transferAs sends a sandbox of b to the bench to, which receives it under the policy p.
func (b *bench) transferAs(to *bench, name string, p catalog.Policy, req transfer.SendRequest) error {
	b.t.Helper()
	var way bytes.Buffer
	if _, err := transfer.New(b.Engine).Send(b.t.Context(), &way, req); err != nil {
		b.t.Fatal(err)
	}
	_, err := transfer.New(to.Engine).Receive(b.t.Context(), &way, transfer.ReceiveRequest{Request: hostfs.Request{Name: name, Workspace: to.workspace, Policy: p}})
	return err
}

// A sandbox has on another machine no more of its budget than was left, and what it used there counts here when it comes
// back, once.
func TestABudgetTravelsWithItsSandbox(t *testing.T) {
	near, far := newBench(t), newBench(t)
	own := catalog.Policy{Network: "allow:example.com", Budget: &catalog.Budget{Tokens: 5000, Requests: 9}}
	near.newWith("fix", &catalog.Budget{Tokens: 1000})
	near.use("fix", 100)
	if err := near.transferAs(far, "fix", own, transfer.SendRequest{Sandbox: "fix"}); err != nil {
		t.Fatal(err)
	}
	far.removeLater("fix")
	far.uses("fix", 100, 1000)
	if rec, err := far.Catalog().Get("fix"); err != nil || rec.Policy.Budget.Requests != 9 || rec.Policy.Budget.Tokens != 1000 {
		t.Errorf("%+v, %v", rec.Policy.Budget, err)
	}
	far.use("fix", 30)
	near.use("fix", 5)
	for range 2 { // as another snapshot each time
		if err := far.transferAs(near, "fix", catalog.Policy{}, transfer.SendRequest{Sandbox: "fix", Base: "s1"}); err != nil {
			t.Fatal(err)
		}
		near.uses("fix", 135, 1000)
	}
	// By way of a third sandbox, also without a budget in its own policy.
	third := newBench(t)
	if err := far.transferAs(third, "other", catalog.Policy{Network: "none"}, transfer.SendRequest{Sandbox: "fix"}); err != nil {
		t.Fatal(err)
	}
	third.removeLater("other")
	third.uses("other", 130, 1000) // far knows nothing of the 5 tokens
	if err := far.transferAs(third, "loose", catalog.Policy{Network: "host"}, transfer.SendRequest{Sandbox: "fix"}); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("received without a proxy that counts: %v", err)
	}
	third.sound("after what was refused")
}

// A sandbox that is sent to its own machine counts together with the one there, as its fork would.
func TestASandboxSentToItsOwnMachineSharesItsBudget(t *testing.T) {
	b := newBench(t)
	b.newWith("fix", &catalog.Budget{Tokens: 1000})
	b.use("fix", 100)
	if err := b.transferAs(b, "twin", catalog.Policy{Network: "none"}, transfer.SendRequest{Sandbox: "fix"}); err != nil {
		t.Fatal(err)
	}
	b.removeLater("twin")
	b.use("twin", 10)
	b.use("fix", 1)
	b.uses("fix", 111, 1000)
	b.uses("twin", 111, 1000)
}
