package pipeline

import (
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// trusted returns ErrDenied if the stages up to last would run commands on the host from a profile that was
// only found in the workspace and that the user has not trusted. It asks the user if o.Trust is set, and
// stores the answer yes.
func (pl *Runner) trusted(o StageOptions, last int) error {
	p := o.Profile
	runs := policy.OnHost(p.Stages[:last+1])
	if !p.Found || len(runs) == 0 {
		return nil
	}
	known, err := pl.engine.Stages.Trusted(p)
	if known || err != nil {
		return err
	}
	if o.Trust != nil && o.Trust(p, runs) {
		return pl.Trust(p)
	}
	return errs.New("promoting", p.Path, errs.ErrDenied,
		"the profile was found in the workspace, and its deploy and after commands would run on this machine as you; nobody has trusted this content of it yet",
		"snapfs profile trust "+errs.Quoted(p.Path)+"   # prints them")
}

// Trust stores that this user trusts a profile, with its present content, to run commands on the host.
func (pl *Runner) Trust(p *policy.Profile) error { return pl.engine.Stages.Trust(p, whoAmI()) }
