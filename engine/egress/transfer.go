package egress

import (
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network/budget"
)

// limitsOf returns the limits of l as those of a ledger.
func limitsOf(l *catalog.Budget) (c budget.Count) {
	bounds := l.Ceilings()
	for _, f := range c.Fields() {
		*f.Value = *bounds[f.Name]
	}
	return c
}

// SendBudget returns the budget of the sandbox of rec, for a stream to another machine: its present limits, and how
// much was used of them, where what open requests reserved counts as used. It returns nil for a sandbox without a
// budget.
func (eg *Gateway) SendBudget(rec *catalog.Record) (*catalog.SentBudget, error) {
	if rec.Policy.Budget == nil {
		return nil, nil //nolint:nilnil // it has none
	}
	dir := eg.Catalog.Path(rec.Name)
	x, err := budget.Export(dir)
	sent := &catalog.SentBudget{Limits: *rec.Policy.Budget, Ledger: x.Ledger, Used: x.Used}
	if err == nil && budget.HasLimits(dir) { // changed since, by a person or the site's policy
		var s budget.State
		s, err = budget.Read(dir)
		bounds := sent.Limits.Ceilings()
		for _, f := range s.Limits.Fields() {
			*bounds[f.Name] = *f.Value
		}
	}
	if err != nil {
		return nil, errs.With("sending the budget", rec.Name, err)
	}
	return sent, nil
}

// ReceiveBudget gives the sandbox of rec, which is made from a stream, the budget in the stream: of each limit the
// lower one of rec's own policy and of the stream, and the use so far. It changes rec and does not store it. If the
// sandbox that was sent is on this machine, the two share its ledger, as a fork would. Errors: errs.ErrCorrupt for
// invalid amounts; errs.ErrInvalid if the network of rec is one whose requests nobody counts.
func (eg *Gateway) ReceiveBudget(rec *catalog.Record, sent *catalog.SentBudget) error {
	if err := checkSent(sent); err != nil {
		return err
	}
	rec.Policy.Budget, _ = rec.Policy.Budget.Lowered(&sent.Limits)
	if _, err := hostfs.Brokered(rec.Policy); err != nil {
		return errs.With("receiving", rec.Name, fmt.Errorf("the sandbox was sent with a budget: %w", err))
	}
	dir := eg.Catalog.Path(rec.Name)
	var err error
	if from := eg.withLedger(sent.Ledger); from != "" {
		err = budget.Share(from, dir)
	}
	if err == nil {
		err = errors.Join(eg.AddSentUse(rec, sent), budget.SetLimits(dir, limitsOf(rec.Policy.Budget)))
	}
	return errs.With("receiving the budget", rec.Name, err)
}

// withLedger returns the directory of a sandbox on this machine whose ledger has this identity, or "". A ledger that
// cannot be read has none: it must not prevent the transfer of other budgets. Its own sandbox cannot use a budget until
// the ledger is mended, and a stream of that sandbox has the use so far.
func (eg *Gateway) withLedger(identity string) string {
	records, _ := eg.Catalog.List() // neither can a damaged record share its ledger
	for _, rec := range records {
		if rec.Policy.Budget == nil {
			continue
		}
		dir := eg.Catalog.Path(rec.Name)
		if id, err := budget.Identity(dir); err == nil && id == identity {
			return dir
		}
	}
	return ""
}

// AddSentUse adds the use of a budget in a stream to the ledger of the sandbox of rec, to which the stream adds a
// snapshot. It counts nothing twice: neither what this machine counted itself, nor what an earlier stream reported. It
// does nothing if the sandbox has no budget. Errors: errs.ErrCorrupt for invalid amounts.
func (eg *Gateway) AddSentUse(rec *catalog.Record, sent *catalog.SentBudget) error {
	if sent == nil || rec.Policy.Budget == nil {
		return nil
	}
	if err := checkSent(sent); err != nil {
		return err
	}
	return errs.With("receiving the budget", rec.Name, budget.Import(eg.Catalog.Path(rec.Name), budget.Exported{Used: sent.Used}))
}

// checkSent returns an error, errs.ErrCorrupt, unless every amount of the budget in a stream is valid.
func checkSent(sent *catalog.SentBudget) error {
	x := budget.Exported{Used: sent.Used}
	err := x.Check()
	if _, named := sent.Used[sent.Ledger]; err == nil && !named {
		err = fmt.Errorf("nothing is said of the sandbox's own ledger %q", sent.Ledger)
	}
	for name, bound := range sent.Limits.Ceilings() {
		if *bound < 0 {
			err = fmt.Errorf("the limit of %s is negative", name)
		}
	}
	for _, p := range sent.Limits.Prices {
		if min(p.Input, p.Output) < 0 || min(p.Cached, p.Written) < -1 {
			err = fmt.Errorf("a price of the model %q is negative", p.Model)
		}
	}
	if err != nil {
		return &errs.Error{Op: "receiving the budget", Kind: errs.ErrCorrupt, Err: err}
	}
	return nil
}
