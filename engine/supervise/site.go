package supervise

import (
	"errors"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// refusedBySite returns an error if the site's policy, the administrator's file of bounds, does not allow the limits
// now for the sandbox with policy p.
func refusedBySite(name string, p catalog.Policy, now catalog.Limits) error {
	p.Limits, p.Site = now, nil
	if err := policy.BoundBySite(&p); err != nil || p.Limits == now {
		return err
	}
	return &errs.Error{
		Op: "limiting", Path: name, Kind: errs.ErrDenied,
		Err: errors.New("the site's policy " + p.Site.Path + " allows no more than " + strings.Join(p.Site.Bounded, ", ")),
	}
}
