package main

import (
	"fmt"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

// answerFlags answer conflicts.
type answerFlags struct {
	mine, theirs []string
	tool         string
}

func (f *answerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.mine, "mine", nil, "in a conflict at this `path`, or at those of a pattern, take what the sandbox has")
	cmd.Flags().StringArrayVar(&f.theirs, "theirs", nil, "in a conflict at this `path`, or at those of a pattern, take what the real tree has")
	cmd.Flags().StringVar(&f.tool, "tool", "", "merge files in conflict by this `command`, with their names in $BASE, $MINE, $REAL and $OUT")
}

// in makes the patterns those of a sandbox.
func (f *answerFlags) in(e *engine.Engine, name string) (mine, theirs []string, err error) {
	if mine, err = patternsIn(e, name, f.mine); err == nil {
		theirs, err = patternsIn(e, name, f.theirs)
	}
	return mine, theirs, err
}

// terminal is what a merge tool talks through: its output must not mix with the
// result.
func (u *ui) terminal() *reconcile.Terminal {
	return &reconcile.Terminal{In: u.in, Out: u.err, Err: u.err}
}

func newPromote(a *app) *cobra.Command {
	var flags carryFlags
	var answers answerFlags
	var stages stageFlags
	var o reconcile.PromoteOptions
	cmd := &cobra.Command{
		Use:   "promote [flags] sandbox",
		Short: "merge a sandbox's changes into the real tree",
		Long: `Carries what a sandbox changed in its workspace to the real tree, merged with what
has happened there since: wholly, or not at all. "snapfs plan" shows beforehand
what that is, and --plan insists on it.

Where both changed the same there is a conflict, and nothing is touched until it
is answered: here, by --mine, --theirs or a merge tool, or in the sandbox, where
"snapfs refresh" brings it to be resolved and tested.

What lies outside the workspace is only carried when --only names it. What runs by
itself later is held back, and named, until --allow names it: see "snapfs help
held". "snapfs undo" takes it back, as long as nobody has changed the result: what
was there is kept beside the target, on its own filesystem.

A merge tool is a command of the shell. It reads the files $BASE, $MINE and $REAL,
makes $OUT, and says with status 0 that it is done; where it names none of these,
they are its arguments.

--to goes through the stages of a profile, see "snapfs help profile": for each, its
checks before, in a sandbox of its target with the changes carried out, then the
target, then its checks after, on the real machine. A stage that fails is taken
back alone. What was decided is written down: --continue goes on after a crash, an
interruption or an approval, and takes the promotion's name, or the sandbox's.`,
		Example: `  snapfs promote fix
  snapfs promote fix --to staging
  snapfs promote --continue --approve
  snapfs promote fix --plan 5c0ffee15a11
  snapfs promote fix --only src --mine '*.lock' --theirs README.md
  snapfs promote fix --tool 'meld --output "$OUT" "$MINE" "$BASE" "$REAL"'`,
		Args:              stages.args,
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			if stages.goOn || stages.cancel {
				return a.promoteStages(cmd.Context(), e, args, stages, o)
			}
			if o.PlanOptions, err = flags.options(e, args[0]); err != nil {
				return err
			}
			if o.Mine, o.Theirs, err = answers.in(e, args[0]); err != nil {
				return err
			}
			o.Tool, o.Terminal = answers.tool, a.ui.terminal()
			if stages.to != "" {
				return a.promoteStages(cmd.Context(), e, args, stages, o)
			}
			done, err := e.Reconcile.Promote(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(done, func(w io.Writer) error {
				if o.DryRun {
					_, err := fmt.Fprintf(w, "%s would be promoted\n", count(done.Changes, "change"))
					return err
				}
				a.ui.promoted(done)
				return nil
			})
		},
	}
	flags.add(cmd)
	answers.add(cmd)
	stages.add(a, cmd)
	cmd.Flags().StringVar(&o.Plan, "plan", "", "promote only what the plan with this `fingerprint` says")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, "only say whether it could be done")
	return cmd
}

// promoted tells what was carried, and what was not.
func (u *ui) promoted(p reconcile.Promoted) {
	if p.ID == "" {
		u.notice("nothing to promote")
	} else {
		u.notice("promoted " + count(p.Changes, "change") + " to " + p.Target + " (snapfs undo " + p.ID + ")")
	}
	if n := len(p.Already); n > 0 {
		u.notice(count(n, "path") + " were as they should be already")
	}
	for _, h := range p.NeedsApproval {
		u.notice("held back: " + h.Path + ": " + h.Why)
	}
	u.notCarried(p.Skipped, p.Elsewhere)
	u.allowHint("promote", p.Sandbox, p.Allow)
}
