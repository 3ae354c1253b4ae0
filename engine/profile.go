package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network"
)

// NoProfile as a path means no profile at all, not even the workspace's.
const NoProfile = "none"

// Under applies a profile to a request: the file at an absolute path, or with "" the one at
// the top of the workspace, if there is one. given reports which flags the user set; their
// values are already in the request.
//
// A profile that the user named applies wherever no flag was set. A profile that was only
// found may have been written by anybody, including a sandbox of this workspace: it can lower
// limits, narrow the network and hide paths, even against a flag, and can grant nothing. The
// policy records the profile, which of its settings apply, and which are ignored. Errors:
// those of policy.Read.
func Under(req *hostfs.Request, path string, given func(flag string) bool) error {
	named := path != ""
	if path == NoProfile {
		return nil
	}
	trust := policy.Named
	if !named {
		trust, path = policy.Tightening, filepath.Join(req.Workspace, policy.Name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil // copying reports a workspace that is a file
		}
	}
	p, err := policy.Read(path, trust)
	if err != nil {
		return readingFound(err, named)
	}
	u := profiled{p: &req.Policy, use: &catalog.ProfileUse{Path: path, Found: !named}}
	if named {
		u.name(&p.Sandbox, given)
	} else {
		u.find(&p.Sandbox)
	}
	if named || len(u.use.Taken)+len(u.use.Left) > 0 {
		req.Policy.Profile = u.use
	}
	return nil
}

// readingFound adds to err a hint how to continue without a profile that the user did not
// name.
func readingFound(err error, named bool) error {
	hints := []string{"snapfs run --profile none …   # without it; new and race take it, too"}
	var e *errs.Error
	switch {
	case named:
		return err
	case errors.As(err, &e):
		e.Hints = hints
		return err
	}
	return &errs.Error{Op: "reading the profile", Err: err, Hints: hints}
}

// A profiled is a policy while a profile is applied to it.
type profiled struct {
	p   *catalog.Policy
	use *catalog.ProfileUse
}

func (u *profiled) took(what string) { u.use.Taken = append(u.use.Taken, what) }
func (u *profiled) left(what string) { u.use.Left = append(u.use.Left, what) }

// name applies a profile that the user named, except where flags were set.
func (u *profiled) name(s *policy.Sandbox, given func(string) bool) {
	theirs := s.Limits.Fields()
	for i, mine := range u.p.Limits.Fields() {
		text := theirs[i].Value.String()
		switch {
		case text == "":
		case given(mine.Name):
			u.left(mine.Name + " " + text)
		case mine.Value.Set(text) == nil: // the same parser wrote it
			u.took(mine.Name + " " + text)
		}
	}
	switch {
	case s.Net == "":
	case given("net"):
		u.left("net " + s.Net)
	default:
		u.p.Network = s.Net
		u.took("net " + s.Net)
	}
	u.p.Expose = u.add("expose", u.p.Expose, s.Expose)
	u.p.Hide = u.add("hide", u.p.Hide, s.Hide)
	u.p.Env = u.add("env", u.p.Env, s.Env)
	u.p.Secrets = s.Secrets
	for _, one := range s.Secrets {
		u.took("secret " + one.Name)
	}
	u.budget(s.Budget)
}

func (u *profiled) add(what string, mine, theirs []string) []string {
	for _, one := range theirs {
		if !slices.Contains(mine, one) {
			mine = append(mine, one)
			u.took(what + " " + one)
		}
	}
	return mine
}

// find applies only the stricter settings of a profile that was found, not named.
func (u *profiled) find(s *policy.Sandbox) {
	theirs, end := s.Limits.Fields(), u.p.Limits.RemovalAge()
	if u.p.Limits.RemoveAfter == 0 {
		s.Limits.KeepEnd = false // there is no end to keep
	}
	for i, mine := range u.p.Limits.Fields() {
		if mine.Value.Tighten(theirs[i].Value) {
			u.took(mine.Name + " " + mine.Value.String())
		} else if text := theirs[i].Value.String(); text != "" && text != mine.Value.String() {
			u.left(mine.Name + " " + text)
		}
	}
	if l := &u.p.Limits; l.RemovalAge() < end { // a shorter ttl does not bring the removal nearer
		l.RemoveAfter = end - l.TTL
	}
	if s.Net != "" {
		net := narrower(u.p.Network, s.Net)
		if net != u.p.Network {
			u.p.Network = net
			u.took("net " + net)
		}
		if net != s.Net {
			u.left("net " + s.Net)
		}
	}
	u.p.Hide = u.add("hide", u.p.Hide, s.Hide)
	for _, one := range s.Expose {
		if !slices.Contains(u.p.Expose, one) {
			u.left("expose " + one)
		}
	}
	for _, one := range s.Env {
		if !slices.Contains(u.p.Env, one) {
			u.left("env " + one)
		}
	}
	for _, one := range s.Secrets {
		u.left("secret " + one.Name)
	}
	u.budget(s.Budget)
}

// budget applies the budget of a profile: it only tightens.
func (u *profiled) budget(b *catalog.Budget) {
	if b != nil {
		u.p.Budget = b
		u.took("budget")
	}
}

// narrower returns a network setting that allows only what both a and b allow.
func narrower(a, b string) string {
	const none, host = "none", "host"
	switch {
	case a == none || b == none:
		return none
	case a == host:
		return b
	case b == host:
		return a
	}
	mine, err := network.Parse(strings.TrimPrefix(a, hostfs.AllowNet))
	theirs, err2 := network.Parse(strings.TrimPrefix(b, hostfs.AllowNet))
	both := mine.Both(theirs)
	if err != nil || err2 != nil || both.Empty() {
		return none
	}
	return hostfs.AllowNet + both.String()
}
