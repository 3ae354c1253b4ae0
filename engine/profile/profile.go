// Package profile applies two files to the request for a sandbox: the profile that the user named or that
// lies in the workspace, and the site's policy, the bounds that the host's administrator sets in
// /etc/snapfs/policy.toml.
//
// Read [Apply] first. Package policy reads the files; this package decides which of their settings count,
// since a profile that was only found may have been written by a sandbox.
package profile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// None in place of a profile's name or path means that the request uses no profile at all, not even the
// snapfs.toml of the workspace.
const None = "none"

// Apply applies a profile to the policy of a request: the one with this name or at this absolute path or,
// with "", the administrator's default profile and the one at the top of the workspace, if they exist. Then
// it tightens the policy to the bounds of the site's policy (/etc/snapfs/policy.toml), also with [None].
// given reports whether the user set a flag; the values of set flags are already in the request.
//
// A profile that the user named applies wherever no flag was set. A profile that was only found in the
// workspace may have been written by anybody, including a sandbox of this workspace. It can lower limits,
// narrow the network and hide paths, even against a flag, and can grant nothing. The policy lists the
// profile, which of its settings apply, and which are ignored. Errors: those of policy.Read and
// policy.ReadSite.
func Apply(ctx context.Context, req *hostfs.Request, path string, given func(flag string) bool) error {
	site, err := policy.ReadSite()
	if err != nil {
		return err
	}
	if path == "" && site != nil && site.Default != "" {
		err = apply(ctx, req, site.Default, given)
	}
	if err == nil && path != None {
		err = apply(ctx, req, path, given)
	}
	site.Bound(&req.Policy)
	return err
}

// apply applies one profile to the policy of a request: the one with this name or path or, with "", the one
// at the top of the workspace. It ignores the administrator's bounds, which its caller applies. given reports
// whether the user set a flag.
func apply(ctx context.Context, req *hostfs.Request, path string, given func(flag string) bool) error {
	named := path != ""
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
	u := profiled{workspace: req.Workspace, p: &req.Policy, use: &catalog.ProfileUse{Path: p.Path, Found: !named}}
	if named {
		if err := u.name(ctx, &p.Sandbox, given); err != nil {
			return err
		}
	} else {
		u.find(&p.Sandbox)
	}
	if named || len(u.use.Taken)+len(u.use.Left) > 0 {
		req.Policy.Profile = u.use
	}
	return nil
}

// readingFound adds to err, the error of reading a profile, a hint how to continue without it. It does so
// only if the user did not name the profile, that is, it was found in the workspace.
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

// A profiled applies the settings of a profile to the policy p, and notes in use which of them apply and
// which are ignored.
type profiled struct {
	workspace string
	p         *catalog.Policy
	use       *catalog.ProfileUse
}

func (u *profiled) took(what string) { u.use.Taken = append(u.use.Taken, what) }
func (u *profiled) left(what string) { u.use.Left = append(u.use.Left, what) }

// name applies the settings s of a profile that the user named with --profile. A setting whose flag the user
// also set, as given reports, stays as the flag says.
func (u *profiled) name(ctx context.Context, s *policy.Sandbox, given func(string) bool) error {
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
	case s.Net == "" && s.Registries == nil:
	case given("net"):
		if s.Net != "" {
			u.left("net " + s.Net)
		}
		for _, one := range s.Registries {
			u.left("registries " + one)
		}
	default:
		net, err := s.Network(ctx, u.workspace)
		if err != nil {
			return err
		}
		u.p.Network = net
		u.took("net " + net)
	}
	switch {
	case s.Ask == 0:
	case given("ask"):
		u.left("ask " + units.FormatDuration(s.Ask))
	default:
		u.p.Ask = s.Ask
		u.took("ask " + units.FormatDuration(s.Ask))
	}
	u.p.Expose = u.add("expose", u.p.Expose, s.Expose)
	u.p.Hide = u.add("hide", u.p.Hide, s.Hide)
	u.p.Env = u.add("env", u.p.Env, s.Env)
	u.keepEvidence(s)
	if s.KeepEvidence != nil {
		u.p.KeepEvidence = s.KeepEvidence
		u.took("keep-evidence " + s.KeepEvidence.String())
	}
	u.nameKeyPoints(&s.KeyPoints, given)
	u.tools(s.Tools, true)
	u.nameSecrets(s.Secrets)
	u.budget(s.Budget, true)
	u.data(s.Data, true)
	u.p.Result = u.add("result only", u.p.Result, s.Result)
	u.direct(s.Direct, true)
	return nil
}

// nameSecrets adds the secrets of a profile that the user named to those of the flag --secret. It leaves out a
// secret of the profile whose name, or whose variable inside, a secret of the flag has.
func (u *profiled) nameSecrets(theirs []catalog.Secret) {
	mine := slices.Clip(u.p.Secrets)
	for _, one := range theirs {
		if slices.ContainsFunc(mine, func(s catalog.Secret) bool { return s.Name == one.Name || s.As == one.As }) {
			u.left("secret " + one.Name)
			continue
		}
		u.p.Secrets = append(u.p.Secrets, one)
		u.took("secret " + one.Name)
	}
}

// keepEvidence turns on the policy's setting evidence, by which every act on the sandbox leaves a signed
// entry, if the profile does. That only tightens the policy, so even a profile that was only found in the
// workspace may do it.
func (u *profiled) keepEvidence(s *policy.Sandbox) {
	if s.Evidence && !u.p.Evidence {
		u.p.Evidence = true
		u.took("evidence true")
	}
}

// nameKeyPoints applies the rules for automatic snapshots (key points) of a profile that the user named,
// except where flags were set.
func (u *profiled) nameKeyPoints(s *catalog.KeyPoints, given func(string) bool) {
	k := new(catalog.KeyPoints)
	if u.p.KeyPoints != nil {
		*k = *u.p.KeyPoints
	}
	for _, one := range []struct {
		flag string
		set  bool
		text string
		take func()
	}{
		{"snapshot-at", len(s.At) > 0, "snapshots " + strings.Join(s.At, ","), func() { k.At = s.At }},
		{"keep-snapshots", s.Keep > 0, "keep-snapshots " + strconv.Itoa(s.Keep), func() { k.Keep = s.Keep }},
		{"keep-snapshots-for", s.KeepFor > 0, "keep-snapshots-for " + units.FormatDuration(s.KeepFor), func() { k.KeepFor = s.KeepFor }},
		{"keep-snapshots-size", s.KeepSize > 0, "keep-snapshots-size " + units.FormatSize(s.KeepSize), func() { k.KeepSize = s.KeepSize }},
	} {
		switch {
		case !one.set:
		case given(one.flag):
			u.left(one.text)
		default:
			one.take()
			u.took(one.text)
		}
	}
	if len(k.At) > 0 {
		u.p.KeyPoints = k
	}
}

// data adds the rules of a profile about paths, and its labels, to the policy. A profile that was only found in the
// workspace (named is false) can add read-only and recorded paths and labels. It can add readable or writable paths only
// to a policy that has no such list: there everything was allowed, and the list narrows that. Writable paths are
// readable, so that a list of readable paths rules out both.
func (u *profiled) data(theirs catalog.Data, named bool) {
	if theirs.MayWrite() == nil && theirs.ReadOnly == nil && theirs.Recorded == nil && !theirs.Labelled() {
		return
	}
	var mine catalog.Data
	if u.p.Data != nil {
		mine = *u.p.Data
	}
	only := func(what string, list *[]string, theirs []string, may bool) {
		if !may {
			for _, one := range theirs {
				u.left("data " + what + " " + one)
			}
			return
		}
		if *list = u.add("data "+what, *list, theirs); *list == nil {
			*list = theirs // an empty list allows nothing
		}
	}
	unlimited := mine.MayWrite() == nil
	only("readable", &mine.Readable, theirs.Readable, named || unlimited)
	only("writable", &mine.Writable, theirs.Writable, named || unlimited)
	mine.Recorded = u.add("data recorded", mine.Recorded, theirs.Recorded)
	mine.ReadOnly = u.add("data read-only", mine.ReadOnly, theirs.ReadOnly)
	mine.Secret = u.add("data secret", mine.Secret, theirs.Secret)
	mine.Private = u.add("data private", mine.Private, theirs.Private)
	u.p.Data = &mine
}

// tools adds the lists of allowed and denied programs of a profile to the policy. A profile that was only
// found in the workspace (named is false) can deny programs. It can allow programs only in a policy without
// such a list: there all were allowed, and the list narrows that.
func (u *profiled) tools(theirs catalog.Tools, named bool) {
	if theirs.Allow == nil && theirs.Deny == nil && theirs.Hook == nil && theirs.MCP == nil {
		return
	}
	var mine catalog.Tools
	if u.p.Tools != nil {
		mine = *u.p.Tools
	}
	if named || mine.Allow == nil {
		mine.Allow = u.add("tools allow", mine.Allow, theirs.Allow)
		if mine.Allow == nil {
			mine.Allow = theirs.Allow // an empty list allows nothing
		}
	} else {
		for _, one := range theirs.Allow {
			u.left("tools allow " + one)
		}
	}
	mine.Deny = u.add("tools deny", mine.Deny, theirs.Deny)
	mine.Hook = u.add("tools hook", mine.Hook, theirs.Hook)
	mine.MCP = u.add("tools mcp", mine.MCP, theirs.MCP)
	u.p.Tools = &mine
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

// leaveLooser lists the settings of s, a profile that was found in the workspace, that do not count there.
func (u *profiled) leaveLooser(s *policy.Sandbox) {
	if s.Ask > 0 {
		u.left("ask " + units.FormatDuration(s.Ask)) // an answer loosens the policy
	}
	if s.KeepEvidence != nil { // it removes records
		u.left("keep-evidence " + s.KeepEvidence.String())
	}
	if len(s.KeyPoints.At) > 0 {
		u.left("snapshots " + strings.Join(s.KeyPoints.At, ",")) // they cost space
	}
}

// find applies the settings s of a profile that was found in the workspace, not named by the user: only those
// that make the policy stricter.
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
		net := policy.Narrower(u.p.Network, s.Net)
		if net != u.p.Network {
			u.p.Network = net
			u.took("net " + net)
		}
		if net != s.Net {
			u.left("net " + s.Net)
		}
	}
	u.leaveLooser(s)
	u.p.Hide = u.add("hide", u.p.Hide, s.Hide)
	u.keepEvidence(s)
	u.tools(s.Tools, false)
	u.data(s.Data, false)
	for _, one := range s.Registries {
		u.left("registries " + one)
	}
	if u.p.Result == nil { // one that was only found may narrow the result, and not widen it
		u.p.Result = u.add("result only", nil, s.Result)
	} else {
		for _, one := range s.Result {
			u.left("result only " + one)
		}
	}
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
	u.budget(s.Budget, false)
	u.direct(s.Direct, false)
}

// direct applies the section of a profile that says which jobs run without a sandbox. A profile that was only
// found in the workspace (named is false) cannot set this, since a sandbox may have written it.
func (u *profiled) direct(theirs *catalog.Direct, named bool) {
	if theirs == nil {
		return
	}
	note := u.left
	if named {
		u.p.Direct, note = theirs, u.took
	}
	for _, one := range theirs.Commands {
		note("direct " + one)
	}
	if theirs.Risky {
		note("direct when risky")
	}
}

// budget applies a profile's budget, its bounds on the requests that a sandbox sends to the network, to the
// policy. A profile that was only found in the workspace (named is false) can only lower bounds that the
// policy already has.
func (u *profiled) budget(theirs *catalog.Budget, named bool) {
	switch {
	case theirs == nil:
	case named || u.p.Budget == nil:
		u.p.Budget = theirs
		u.took("budget")
	default:
		b, lowered := u.p.Budget.Lowered(theirs)
		u.p.Budget = b
		for _, name := range lowered {
			u.took("budget " + name)
		}
		for name, ceiling := range theirs.Ceilings() {
			if *ceiling > 0 && *ceiling != *b.Ceilings()[name] {
				u.left("budget " + name)
			}
		}
	}
}
