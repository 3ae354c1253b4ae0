package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
)

// An askFlag is the value of the flag --ask: how long a connection to an unknown destination waits for a person.
type askFlag struct{ wait *time.Duration }

func (v askFlag) String() string {
	if v.wait == nil || *v.wait == 0 {
		return ""
	}
	return units.FormatDuration(*v.wait)
}

func (v askFlag) Set(text string) (err error) {
	*v.wait, err = policy.ParseAsk(text)
	return err
}

func (v askFlag) Type() string { return "duration" }

// addAsk adds the flag --ask, which has connections to unknown destinations wait for a person, to f.
func addAsk(f *pflag.FlagSet, wait *time.Duration) {
	f.Var(askFlag{wait}, "ask", "hold a connection that no rule of --net allows until you decide, at most this `time` (see snapfs net)")
	f.Lookup("ask").NoOptDefVal = units.FormatDuration(network.AskTime)
}

// checkAsk returns a usage error if connections are to wait for a person, by the flag --ask, in a sandbox without
// network rules. Where only a profile says so, none wait.
func (r *requestFlags) checkAsk(p *catalog.Policy) error {
	if p.Ask == 0 || strings.HasPrefix(p.Network, hostfs.AllowNet) {
		return nil
	}
	if r.given.Changed("ask") {
		return usageError(fmt.Errorf("--ask requires --net allow:RULES, and the network is %s", p.Network))
	}
	p.Ask = 0
	return nil
}

// askFromNow has connections to unknown destinations wait for a person in the sandbox called name, from its next start
// on; wait is how long, or 0 to change nothing. Nothing may run in the sandbox unless its connections wait so already.
func (a *app) askFromNow(ctx context.Context, name string, wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	h, err := e.Supervise.Hold(ctx, name, "entering")
	if err != nil {
		return err
	}
	defer h.Release()
	if !strings.HasPrefix(h.Policy.Network, hostfs.AllowNet) {
		return usageError(fmt.Errorf("--ask requires a sandbox with --net allow:RULES, and the network of %s is %s", name, h.Policy.Network))
	}
	if h.Policy.Ask == wait {
		return nil
	}
	if err := e.Supervise.MustBeIdle(ctx, h, "entering with --ask"); err != nil {
		return err
	}
	h.Policy.Ask = wait
	if err := policy.BoundBySite(&h.Policy); err != nil {
		return err
	}
	return h.Save()
}

// netFlags are the flags of `snapfs net`: a person's answers about the network of a sandbox.
type netFlags struct {
	allow, deny   []string
	once, refused bool
	profile       string
}

// check returns a usage error for flags that exclude one another.
func (n *netFlags) check() error {
	switch {
	case len(n.allow) > 0 && len(n.deny) > 0:
		return usageError(errors.New("--allow and --deny exclude one another"))
	case n.once && len(n.allow)+len(n.deny) == 0:
		return usageError(errors.New("--once requires --allow or --deny"))
	case n.profile != "" && (len(n.allow) == 0 || n.once):
		return usageError(errors.New("--profile requires --allow, without --once"))
	}
	return nil
}

// answer carries out what a person allows or denies the sandbox called name.
func (a *app) answer(ctx context.Context, e *engine.Engine, name string, n netFlags) error {
	list := n.allow
	if len(n.deny) > 0 {
		list = n.deny
	}
	if len(list) == 0 {
		return nil
	}
	rules, err := network.Parse(strings.Join(list, ","))
	if err != nil {
		return usageError(err)
	}
	if (n.once || len(n.deny) > 0) && (rules.HasMethods() || strings.Contains(rules.String(), "+")) {
		return usageError(errors.New("--once and --deny take destinations, without methods and options"))
	}
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return err
	}
	switch {
	case len(n.deny) > 0 && !n.once && !rec.Ephemeral:
		h, err := e.Supervise.Hold(ctx, name, "denying")
		if err != nil {
			return err
		}
		defer h.Release()
		return e.Egress.Deny(h, rules)
	case len(n.deny) > 0:
		return e.Egress.Answer(rec, network.Answer{Rules: rules.String(), Always: !n.once})
	case n.once:
		return e.Egress.Answer(rec, network.Answer{Rules: rules.String(), Allow: true})
	case n.profile != "":
		return a.allowByProfile(ctx, e, rec, rules, n.profile)
	}
	return allowMore(ctx, e, rec, rules)
}

// allowMore adds network rules to those of a sandbox, which may belong to a run.
func allowMore(ctx context.Context, e *engine.Engine, rec *catalog.Record, rules network.Rules) error {
	if rec.Ephemeral && rec.Policy.Ask > 0 {
		return e.Egress.AllowRun(rec, rules)
	}
	_, err := e.Supervise.AllowNetwork(ctx, rec.Name, rules)
	return err
}

// allowByProfile adds network rules to those of a sandbox and to the profile in a file. It shows the change of the file
// first, and at a terminal asks. If the file cannot be changed, nothing is allowed.
func (a *app) allowByProfile(ctx context.Context, e *engine.Engine, rec *catalog.Record, rules network.Rules, file string) error {
	path, err := absolute(file)
	if err != nil {
		return err
	}
	edit, err := policy.AddNet(path, rules)
	if err != nil {
		return err
	}
	if edit.Line > 0 {
		text := fmt.Sprintf("%s:%d\n", pathlist.Printable(edit.Path), edit.Line)
		if edit.Old != "" {
			text += "- " + edit.Old + "\n"
		}
		if _, err := io.WriteString(a.ui.err, tame(text+"+ "+edit.New+"\n")); err != nil {
			return err
		}
		if !a.ui.agrees("write that to the profile, and allow it?", "write it", "change and allow nothing") {
			return errs.New("allowing", rec.Name, errs.ErrInterrupted, "you did not agree")
		}
	}
	if err := errors.Join(allowMore(ctx, e, rec, rules), edit.Write()); err != nil {
		return err
	}
	switch {
	case edit.Line > 0 && len(edit.OnHost) > 0:
		a.ui.notice("the profile has changed: trust it again before its stages run on this machine")
		a.ui.hint("snapfs profile trust " + errs.Quoted(edit.Path))
	case edit.Line == 0:
		a.ui.notice(pathlist.Printable(edit.Path) + " allows that already")
	}
	return nil
}

// printQuestions prints what waits for a person in the sandbox called name.
func printQuestions(w io.Writer, name string, all []network.Question) {
	for _, q := range all {
		fmt.Fprintf(w, "waits: %s (%s, until %s)\n  snapfs net %s --allow %s\n  snapfs net %s --deny %s\n",
			tame(q.Rule), count(q.Connections, "connection"), q.Until.Local().Format(time.TimeOnly), name, errs.Quoted(q.Rule), name, errs.Quoted(q.Rule))
	}
}

// printAsk prints how long connections wait for a person by the policy p, and the destinations that a person denied.
// line prints a line of a table, its name and its value.
func printAsk(p *catalog.Policy, line func(name, value string)) {
	if p.Ask > 0 {
		line("ask", units.FormatDuration(p.Ask))
	}
	if p.Denied != "" {
		line("denied", p.Denied)
	}
}
