package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/spf13/cobra"
)

// A runner is one run of `snapfs run`: the values of its flags, with the methods for its steps.
type runner struct {
	a                           *app
	flags                       requestFlags
	keep, apply, discard, quiet bool
	report                      string
}

func newRun(a *app) *cobra.Command {
	r := runner{a: a}
	cmd := &cobra.Command{
		Use:   "run [flags] -- command [argument...]",
		Short: "run a command in a fresh clone, show its changes, keep or discard them",
		Long: `Clones this machine's environment, runs a command in the clone, and shows its changes.
On a terminal it then asks what to do with them. Where it cannot ask, as in a pipe, and
neither --keep, --apply nor --discard is given, it keeps a sandbox with changes for a day,
under a name that it prints and that snapfs last prints again. snapfs keep makes it stay.
A sandbox whose changes --apply did not apply, as the command failed, is kept likewise.
A sandbox without changes is removed. Of all that are kept so, it keeps the newest 20, and
at most 4 GiB of changes together; --remove-after sets another time than a day.

snapfs exits with the command's status, and standard output is the command's own, byte
for byte. The list of changes goes to standard error when the command has ended, and
with --report to a file.`,
		Example: `  snapfs run -- make test
  snapfs run --net host -- npm install
  snapfs run --keep --name fix -- sh -c 'sed -i s/8080/9090/ *.conf'
  snapfs run --report changes.json -- ./configure > log; snapfs diff $(snapfs last)
  snapfs run --discard -- make check | tail`,
		Annotations: map[string]string{passesStatus: ""},
		Args:        atLeast("command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.keep && (r.apply || r.discard) || r.apply && r.discard {
				return usageError(errors.New("--keep, --apply and --discard exclude one another"))
			}
			return r.run(cmd.Context(), args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	r.flags.add(cmd)
	r.flags.addProve(cmd)
	r.flags.addEvidence(cmd)
	r.flags.addSecret(cmd)
	r.flags.addKeyPoints(cmd)
	cmd.Flags().StringVar(&r.flags.name, "name", "", "keep the sandbox under this `name`, if --keep or a person keeps it")
	cmd.Flags().BoolVar(&r.keep, "keep", false, "keep the sandbox")
	cmd.Flags().BoolVar(&r.apply, "apply", false, "apply the workspace's changes to the real tree if the command succeeds")
	cmd.Flags().BoolVar(&r.discard, "discard", false, "discard the changes without asking, for scripts")
	cmd.Flags().BoolVarP(&r.quiet, "quiet", "q", false, "print no changes")
	cmd.Flags().StringVar(&r.report, "report", "", "write the --json document to this `file`")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (r *runner) run(ctx context.Context, args []string) error {
	report, err := r.openReport()
	if err != nil {
		return err
	}
	defer report.Close()
	search := hostfs.SearchSecrets() // in the background of the next steps
	tty := r.a.terminal(false)
	req, dir, err := r.flags.request(ctx, r.a)
	if err != nil {
		return err
	}
	req.Search = search
	if p := &req.Policy; p.Tools != nil || p.Data != nil || p.Result != nil {
		freeLater()
	}
	e, err := r.a.engine(ctx)
	if err != nil {
		return err
	}
	command, err := tty.command(engine.Command{Args: args, Env: hostfs.Environ(os.Environ(), req.Policy.Env), Dir: dir})
	if err != nil {
		return err
	}
	begin, done := starting(ctx)
	defer done()
	s, err := e.Run(begin, req, command)
	if err != nil {
		r.a.explainRefusal(err, req.Policy.Tools, args[0])
		return err
	}
	places := attempts.PlacesOf(s.Hidden, s.Record.Policy.Hide)
	level := s.Supervisor.Container.Level()
	r.a.missing(level)
	st, err := tty.follow(ctx, s.Proc, s.Wait)
	ctx = context.WithoutCancel(ctx) // a signal that ended the command has done its work
	if err != nil {
		return errors.Join(err, s.Discard(ctx))
	}
	r.a.status = st.ExitCode()
	r.a.printLimitHit(s.Hit, st, "--", s.Record.Policy.Profile)
	r.a.printRefused(s.Refused)
	r.a.printAttempts(s.Attempts.List())
	hidden := hiddenIn(s, places, mentionsOf(command, tty), st)
	if len(hidden) > 0 {
		r.a.printHidden(r.a.status, hidden, "snapfs run --expose "+errs.Quoted(hostfs.ExposeFlag(hidden[0].Place))+" …", "snapfs help hidden")
	}
	doc := runDocument{Workspace: req.Workspace, Status: r.a.status, Hit: s.Hit, Refused: s.Refused, Attempts: s.Attempts.List(), Hidden: hidden, Profile: s.Record.Policy.Profile, Proof: s.Record.Proof}
	if r.a.ui.json || report != nil {
		doc.Level = level.String()
	}
	if st.Signal != 0 {
		doc.Signal = st.Signal.String()
	}
	if s.Record.Policy.Evidence {
		if err := evidence.RecordChanges(ctx, e, s.Record); err != nil {
			return r.keepAfter(ctx, s, &doc, err)
		}
	}
	err = r.settle(ctx, s, &doc)
	doc.Sandbox = s.Record.Name
	return errors.Join(err, r.writeDocument(doc, report))
}

// openReport creates the file of the flag --report before the command starts. It returns nil without that
// flag.
func (r *runner) openReport() (*os.File, error) {
	if r.report == "" {
		return nil, nil
	}
	f, err := os.Create(r.report)
	if err != nil {
		return nil, &errs.Error{Op: "opening the report", Path: r.report, Kind: errs.KindOf(err), Err: errors.Unwrap(err)}
	}
	return f, nil
}

// writeDocument writes the JSON document of the run to standard output with --json, and to the file of
// --report.
func (r *runner) writeDocument(doc runDocument, report *os.File) error {
	var failures []error
	if report != nil {
		failures = append(failures, json.NewEncoder(report).Encode(doc))
	}
	if r.a.ui.json {
		failures = append(failures, json.NewEncoder(r.a.ui.err).Encode(doc))
	}
	return errors.Join(failures...)
}

// settle ends a run: it prints the changes, and keeps the sandbox, applies its changes or removes it, as the
// flags or the person say.
func (r *runner) settle(ctx context.Context, s *engine.Session, doc *runDocument) error {
	changes, err := s.Engine.Compare.Changes(ctx, s.Record)
	if err != nil {
		// The work is not thrown away because it cannot be shown.
		return r.keepAfter(ctx, s, doc, err)
	}
	defer changes.Close()
	r.a.ui.notices(changes.FindCommits())
	if r.a.ui.json || r.report != "" {
		doc.changesDocument = documentOf(changes)
	}
	if err := r.print(changes, s, doc); err != nil {
		return r.keepAfter(ctx, s, doc, err)
	}
	if doc.Left, err = left(s.Record, changes); err != nil {
		return r.keepAfter(ctx, s, doc, err)
	}
	if len(doc.Left) > 0 && !r.quiet && !(r.apply && doc.Status == 0) { // applying prints them
		r.a.ui.printLeft(doc.Left)
	}
	switch {
	case r.keep:
		return r.keepIt(ctx, s, doc)
	case r.apply && doc.Status == 0:
		return r.applyIt(ctx, s, doc, false)
	case r.discard || changes.Len() == 0:
		return r.remove(ctx, s, doc)
	case r.a.ui.interactive() && !r.apply:
		return r.ask(ctx, s, changes, doc)
	}
	return r.keepUnclaimed(ctx, s, doc)
}

// left returns the changed paths that are not promoted, since the section [result] of the sandbox's profile
// does not name them.
func left(rec *catalog.Record, changes *compare.Changes) ([]string, error) {
	if rec.Policy.Result == nil {
		return nil, nil
	}
	p, err := compare.Selection(rec, nil)
	if err != nil {
		return nil, err
	}
	return p.Left(changes.Parts), nil
}

// print prints the workspace's changes on standard error, unless --json or --quiet is given. doc holds the
// command's exit status.
func (r *runner) print(changes *compare.Changes, s *engine.Session, doc *runDocument) error {
	u := r.a.ui
	if u.json || r.quiet {
		return nil
	}
	if s.Unreached && doc.Hit == nil {
		u.notice(fmt.Sprintf("status %d after a refused connection: the sandbox has no network (--net host uses this machine's)", doc.Status))
	}
	most := 0
	if isTerminal(u.err) {
		most = screenful
	}
	var w io.Writer = u.err
	if u.colours(u.err) {
		w = &letterPainter{w: w}
	}
	return printTable(w, changes, most, "keep it, then snapfs diff")
}

// ask asks the person whether to apply the changes, or to keep or discard the sandbox. At the end of input
// the sandbox stays for a day, so that no work is lost.
func (r *runner) ask(ctx context.Context, s *engine.Session, changes *compare.Changes, doc *runDocument) error {
	for {
		switch r.a.ui.ask("apply, keep, discard, or look closer? [a/k/d/l]",
			answer{"apply", "apply the workspace's changes to the real tree and remove the sandbox (snapfs undo restores it)"},
			answer{"discard", "discard the changes and the sandbox"},
			answer{"look", "show the changes line by line, then ask again"},
			answer{"keep", "change nothing and keep the sandbox"},
			answer{"", "at the end of input, keep the sandbox for a day"}) {
		case "apply":
			return r.applyIt(ctx, s, doc, changes.Elsewhere() > 0)
		case "discard":
			return r.remove(ctx, s, doc)
		case "keep":
			return r.keepIt(ctx, s, doc)
		case "look":
			if err := printPatch(ctx, r.a.ui.err, changes, true, r.a.ui.colours(r.a.ui.err)); err != nil {
				return r.keepAfter(ctx, s, doc, err)
			}
		default:
			return r.keepUnclaimed(ctx, s, doc)
		}
	}
}

// remove discards the changes of the run's sandbox and removes the sandbox, and notes that in doc.
func (r *runner) remove(ctx context.Context, s *engine.Session, doc *runDocument) error {
	doc.Fate = "discarded"
	return r.discardSandbox(ctx, s)
}

// discardSandbox removes the sandbox. If evidence about it is collected, the statement that ends the evidence
// is signed before.
func (r *runner) discardSandbox(ctx context.Context, s *engine.Session) error {
	var err error
	if s.Record.Policy.Evidence {
		if err = evidence.End(ctx, s.Engine, s.Record); err == nil {
			r.a.ui.hint("snapfs evidence export " + s.Record.Name + " -o " + s.Record.Name + ".evidence")
		}
	}
	return errors.Join(err, s.Discard(ctx))
}

// keepIt makes the sandbox permanent under its present name, and prints that name and the commands that may
// follow.
func (r *runner) keepIt(ctx context.Context, s *engine.Session, doc *runDocument) error {
	if err := s.KeepRun(ctx); err != nil {
		return err
	}
	doc.Fate = "kept"
	name := s.Record.Name
	r.a.ui.notice("kept as " + name)
	r.a.ui.hint("snapfs diff "+name, "snapfs apply "+name, "snapfs rm "+name)
	return nil
}

// keepUnclaimed lets the sandbox stay for a day because nobody has decided about it. It prints the sandbox's
// name and the commands that may follow.
func (r *runner) keepUnclaimed(ctx context.Context, s *engine.Session, doc *runDocument) error {
	end, err := s.KeepUnclaimed(ctx, r.a.ui.interactive())
	if err != nil {
		return err
	}
	doc.Fate, doc.RemovedAt = "kept", &end
	name := s.Record.Name
	r.a.ui.notice("kept as " + name + " until " + end.Format(time.DateTime) + ", for nobody has decided (--discard removes it at once)")
	r.a.ui.hint("snapfs diff "+name, "snapfs promote "+name, "snapfs keep "+name, "snapfs rm "+name)
	return nil
}

// keepRest keeps the sandbox for a day, for those changes that were not applied since the section [result] of
// its profile does not name their paths.
func (r *runner) keepRest(ctx context.Context, s *engine.Session, doc *runDocument) error {
	end, err := s.KeepUnclaimed(ctx, r.a.ui.interactive())
	if err != nil {
		return err
	}
	doc.Fate, doc.RemovedAt = "kept", &end
	name := s.Record.Name
	r.a.ui.notice("kept as " + name + " until " + end.Format(time.DateTime) + " for what is outside the result")
	r.a.ui.hint("snapfs diff "+name, "snapfs apply "+name+" PATH", "snapfs rm "+name)
	return nil
}

// keepAfter makes the sandbox permanent after the error err, so that no work is lost, and returns err with
// the sandbox's name added.
func (r *runner) keepAfter(ctx context.Context, s *engine.Session, doc *runDocument, err error) error {
	if kerr := s.KeepRun(ctx); kerr != nil {
		return errors.Join(err, kerr)
	}
	doc.Fate = "kept"
	name := s.Record.Name
	return errs.With("", "", fmt.Errorf("%w\nkept as %s", err, name), append(errs.HintsOf(err), "snapfs diff "+name, "snapfs rm "+name)...)
}

// applyIt applies the workspace's changes to the real tree. If that fails, it makes the sandbox permanent, so
// that no work is lost. With asks it also offers that if there are changes outside the workspace, which are
// not applied.
func (r *runner) applyIt(ctx context.Context, s *engine.Session, doc *runDocument, asks bool) error {
	ruled := s.Record.Policy.Result != nil
	applied, err := s.Promote(ctx, reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Drift: reconcile.RefuseDrift}}, asks || ruled)
	if err != nil {
		return r.keepAfter(ctx, s, doc, err)
	}
	words := applyWords
	words.elsewhere = "discarded; --keep, then snapfs apply with its path, applies it"
	if asks {
		words.elsewhere = "not applied"
	}
	r.a.ui.promoted(applied, words)
	if doc.Left = applied.Left; len(applied.Left) > 0 {
		doc.Applied = applied.Changes
		return r.keepRest(ctx, s, doc)
	}
	if asks && r.a.ui.ask("keep the sandbox for its changes elsewhere, or discard it? [k/d]",
		answer{"discard", "discard the changes elsewhere and the sandbox"},
		answer{"keep", "keep the sandbox; snapfs apply with a path applies them"}) == "keep" {
		return r.keepIt(ctx, s, doc)
	}
	err = r.discardSandbox(ctx, s)
	doc.Fate = "applied"
	return err
}

// A runDocument is the JSON form of the result of `snapfs run`, printed with --json and written to the file
// of --report.
type runDocument struct {
	Sandbox   string `json:"sandbox"`
	Workspace string `json:"workspace"`
	// Status is the command's exit status; Signal is the signal that killed it, or 0.
	Status int    `json:"status"`
	Signal string `json:"signal,omitempty"`
	// Hit is the limit that ended the command, or one that it reached.
	Hit *engine.Hit `json:"hit,omitempty"`
	// Refused lists the destinations that the proxy refused.
	Refused []egress.RefusedAccess `json:"refused,omitempty"`
	// Attempts lists the hidden files that programs looked for, and the programs that were refused.
	Attempts []attempts.Attempt `json:"attempts,omitempty"`
	// Hidden lists the hidden paths that a failed command mentions, unless its sandbox is observed.
	Hidden []attempts.HiddenPath `json:"hidden,omitempty"`
	// Fate is what became of the sandbox: "discarded", "kept" or "applied".
	Fate string `json:"fate"`
	// Applied is the number of changes that were applied of a sandbox that stays for the others,
	// and Left are the paths of those: outside the result of the profile.
	Applied int      `json:"applied,omitempty"`
	Left    []string `json:"left,omitempty"`
	// RemovedAt is the time at which a sandbox is removed that was kept because nobody had
	// decided.
	RemovedAt *time.Time `json:"removed_at,omitempty"`
	// Level describes the isolation in force.
	Level string `json:"level"`
	// Profile is the sandbox's profile, with the settings taken from it and those ignored.
	Profile *engine.ProfileUse `json:"profile,omitempty"`
	// Proof holds the results of the self-test, with --prove.
	Proof *engine.Proof `json:"proof,omitempty"`
	changesDocument
}

// printAttempts prints the hidden files that the programs of a sandbox looked for, and the writes and the programs
// that were refused.
func (a *app) printAttempts(list []attempts.Attempt) {
	var texts []string
	for _, t := range list {
		texts = append(texts, t.Text())
	}
	a.ui.noticeSome(texts, "attempts")
}
