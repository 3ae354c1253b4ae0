package egress

import (
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

// boundBySite lowers the limits of a sandbox's request budget to those of the administrator's policy
// (/etc/snapfs/policy.toml). It returns the lowered ones by their names, and the path of that file. Errors:
// those of [policy.ReadSite].
func boundBySite(limits *budget.Count) (lowered map[string]int64, path string, err error) {
	site, err := policy.ReadSite()
	if err != nil || site == nil || site.Sandbox.Budget == nil {
		return nil, "", err
	}
	lowered = map[string]int64{}
	ceilings := site.Sandbox.Budget.Ceilings()
	for _, f := range limits.Fields() {
		if bound := *ceilings[f.Name]; bound > 0 && (*f.Value == 0 || *f.Value > bound) {
			*f.Value = bound
			lowered[f.Name] = bound
		}
	}
	return lowered, site.Path, nil
}

// lower lowers the limits in the request budget of the sandbox with the directory dir to those of the
// administrator's policy (/etc/snapfs/policy.toml).
func lower(dir string) error {
	s, err := budget.Read(dir)
	if err != nil {
		return err
	}
	lowered, _, err := boundBySite(&s.Limits)
	if err != nil || len(lowered) == 0 {
		return err
	}
	return budget.SetLimits(dir, s.Limits)
}

// PausesWhenSpent reports whether a sandbox is paused when its request budget has no room. One that ends with its
// command is not, because nobody can increase its budget.
func PausesWhenSpent(rec *catalog.Record) bool { return rec.Policy.Budget != nil && !rec.Ephemeral }

// LimitRaised reports whether a limit of the request budget in the sandbox directory dir is higher now than when it
// refused a request, as spent describes it. Then a paused sandbox can go on. It returns false if the budget cannot be
// read.
func LimitRaised(dir string, spent network.SpentLimit) bool {
	s, err := budget.Read(dir)
	if err != nil {
		return false
	}
	for _, f := range s.Limits.Fields() {
		if f.Name == spent.Limit {
			return *f.Value == 0 || *f.Value > spent.Value
		}
	}
	return false
}

// ShareBudget gives a fork, before its first start, the ledger of its sandbox, where the requests of both are counted:
// otherwise each fork could use the whole budget again. from and to are the directories of the sandbox and of the fork,
// whose record is fork. It does nothing if the fork has no budget.
func ShareBudget(fork *catalog.Record, from, to string) error {
	if fork.Policy.Budget == nil {
		return nil
	}
	return errs.With("sharing the budget", fork.Name, budget.Share(from, to))
}

// RequireBudget returns an error if the sandbox with the directory dir has no request budget. Errors:
// errs.ErrNotFound, also for a sandbox that has not run yet, as its first start creates the budget.
func RequireBudget(rec *catalog.Record, dir string) error {
	if rec.Policy.Budget != nil && budget.HasLimits(dir) {
		return nil
	}
	return &errs.Error{
		Op: "reading the budget of", Subject: rec.Name, Kind: errs.ErrNotFound, Err: errors.New("the sandbox has no budget, or has not run yet"),
		Hints: []string{"snapfs help profile   # a section [budget]"},
	}
}

// ChangeLimits applies change to the limits of a sandbox's request budget; dir is the sandbox's directory, and the
// caller holds the sandbox's lock. what names the limit that change increases. After an error the limits are as before.
// Errors: those of [RequireBudget], change, and errs.ErrDenied if the limit would exceed that of
// the administrator's policy (/etc/snapfs/policy.toml).
func ChangeLimits(rec *catalog.Record, dir, what string, change func(limits *budget.Count) error) error {
	if err := RequireBudget(rec, dir); err != nil {
		return err
	}
	s, err := budget.Read(dir)
	if err != nil {
		return errs.With("reading the budget of", rec.Name, err)
	}
	if err := change(&s.Limits); err != nil {
		return err
	}
	return setLimits(rec.Name, dir, what, s.Limits)
}

// setLimits replaces the limits of the request budget of the sandbox called name. dir contains its ledger,
// the file that counts its requests. what names the limit that changes. Errors: errs.ErrDenied if it would
// exceed that of the administrator's policy (/etc/snapfs/policy.toml).
func setLimits(name, dir, what string, limits budget.Count) error {
	allowed := limits
	lowered, path, err := boundBySite(&allowed)
	if err != nil {
		return err
	}
	if most, ok := lowered[what]; ok {
		return errs.New("raising the budget", name, errs.ErrDenied, fmt.Sprintf("the site's policy %s allows no more than %s %s", path, what, budget.FormatAmount(what, most)))
	}
	return errs.With("raising the budget", name, budget.SetLimits(dir, limits))
}
