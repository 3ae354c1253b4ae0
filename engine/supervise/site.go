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

// allowedBySite returns the part of the network setting text that the site's policy, the administrator's file of
// bounds, allows. If that is no more than the sandbox's policy p already has, it returns an error.
func allowedBySite(name string, p catalog.Policy, text string) (string, error) {
	was := p.Network
	p.Network, p.Site = text, nil
	if err := policy.BoundBySite(&p); err != nil {
		return "", err
	}
	if p.Network != text && (p.Network == was || p.Network == "none") {
		return "", &errs.Error{Op: "allowing", Path: name, Kind: errs.ErrDenied, Err: errors.New("the site's policy " + p.Site.Path + " allows no more than " + p.Network)}
	}
	return p.Network, nil
}
