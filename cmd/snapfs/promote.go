package main

import (
	"context"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/merge/mergetool"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

// answerFlags hold the flags that resolve conflicts: --mine takes the sandbox's version of a path, --theirs
// the real one, and --tool starts a merge tool.
type answerFlags struct {
	mine, theirs []string
	tool         string
}

func (f *answerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.mine, "mine", nil, "resolve conflicts at this `path` or pattern with the sandbox's version")
	cmd.Flags().StringArrayVar(&f.theirs, "theirs", nil, "resolve conflicts at this `path` or pattern with the real tree's version")
	cmd.Flags().StringVar(&f.tool, "tool", "", "merge conflicting files with this `command`; it gets $BASE, $MINE, $REAL and $OUT")
}

// in returns the patterns of the flags --mine and --theirs, made absolute in the workspace of the sandbox
// called name.
func (f *answerFlags) in(e *engine.Engine, name string) (mine, theirs []string, err error) {
	if mine, err = patternsIn(e, name, f.mine); err == nil {
		theirs, err = patternsIn(e, name, f.theirs)
	}
	return mine, theirs, err
}

// terminal returns the streams on which a merge tool runs. Its output goes to standard error, because it must
// not mix with the result.
func (u *ui) terminal() *mergetool.Terminal {
	return &mergetool.Terminal{In: u.in, Out: u.err, Err: u.err}
}

const promoteLong = `Merges a sandbox's changes of its workspace into the real tree: all of them or none.
"snapfs plan" shows the steps beforehand, and --plan promotes exactly that plan.

If both sides changed the same place, promote reports a conflict and changes nothing.
Resolve it here, with --mine, --theirs or a merge tool, or in the sandbox after "snapfs
refresh".

Commits that were made inside come back with the files, if the workspace is in a git
repository: the current branch moves forward, and other branches and tags are stored as
refs/snapfs/SANDBOX/NAME. Where the branch has moved meanwhile, its commits are stored,
too, unless --merge, --rebase or --squash joins them. --as-branch makes a branch of the
commits and changes no file; "snapfs fetch" only stores them.

--only limits it to paths, or to patterns as in a gitignore file, such as '**/*.md'; one
that matches no change is an error. Changes outside the workspace need --only. A renamed
file is two changes: --only with its old path alone deletes the real file.

Changes that can run code later, or widen rights, need approval: without it promote
changes nothing, lists them by reason and prints the command that approves them
("snapfs help held"). "snapfs undo" restores the target as long as nobody has changed
the result.

--patch shows each change, and each hunk of a changed text, and asks: y promotes it, n
leaves it in the sandbox, a and d are y and n for the rest of the file, s splits a hunk, q
leaves the rest, ? prints help. A new, deleted, moved or binary file, a link and a change
of metadata are one question each. Where standard input is no terminal, it holds the
answers, one a line. What is not picked stays among the sandbox's changes; so do commits,
whose files are promoted as changes.

A merge tool is a shell command. It reads the files $BASE, $MINE and $REAL, writes
$OUT, and exits with status 0 when the file is merged; a command that names none of
these gets them as arguments.

--to promotes through the stages of a profile, see "snapfs help profile". Each stage
runs its checks before in a sandbox of its target with the changes applied, then
promotes to the target, then runs its checks after on the real machine. A stage that
fails is undone alone. snapfs records each decision: --continue resumes after a crash,
an interruption or an approval, and takes the promotion's name or the sandbox's.`

func newPromote(a *app) *cobra.Command {
	var flags selectFlags
	var answers answerFlags
	var stages stageFlags
	var o reconcile.PromoteOptions
	var patch bool
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "promote [flags] sandbox",
		Short: "merge a sandbox's changes into the real tree",
		Long:  promoteLong,
		Example: `  snapfs promote fix
  snapfs promote fix --patch
  snapfs promote fix --to staging
  snapfs promote fix --squash -m "fix the port"
  snapfs promote --continue --approve
  snapfs promote fix --plan 5c0ffee15a11
  snapfs promote fix --only src --mine '*.lock' --theirs README.md
  snapfs promote fix --tool 'meld --output "$OUT" "$MINE" "$BASE" "$REAL"'`,
		Args:              stages.args,
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) (err error) {
			do := func() error { return a.promote(ctx, e, args[0], o, promoteWords) }
			if patch {
				if err := a.pickArgs(cmd); err != nil {
					return err
				}
				do = func() error { return a.promotePicked(ctx, e, args[0], o) }
			}
			if stages.resume || stages.cancel || stages.to != "" {
				do = func() error { return a.promoteStages(ctx, e, args, stages, o) }
			}
			if !stages.resume && !stages.cancel {
				if o.PlanOptions, err = flags.options(e, args[0]); err != nil {
					return err
				}
				if o.Mine, o.Theirs, err = answers.in(e, args[0]); err != nil {
					return err
				}
				o.Tool, o.Terminal = answers.tool, a.ui.terminal()
			}
			return do()
		}),
	}
	flags.add(cmd)
	answers.add(cmd)
	stages.add(a, cmd)
	cmd.Flags().StringVar(&o.Plan, "plan", "", "promote only if the plan has this `fingerprint`")
	cmd.Flags().BoolVarP(&patch, "patch", "p", false, "ask about each change, and each hunk of a text, and promote what is picked")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, "check only, change nothing")
	return cmd
}

// promotedWords are the words with which a command reports a promotion: `snapfs promote` and `snapfs apply`
// differ in them.
type promotedWords struct {
	// verb is "promote" or "apply", done its past, and elsewhere the fate of the changes outside
	// the workspace.
	verb, done, elsewhere string
}

var (
	promoteWords = promotedWords{"promote", "promoted", "not promoted; add --only PATH to promote it"}
	applyWords   = promotedWords{"apply", "applied", "not applied; name the path to apply it"}
)

// promote promotes the changes of the sandbox called name and prints the result.
func (a *app) promote(ctx context.Context, e *engine.Engine, name string, o reconcile.PromoteOptions, words promotedWords) error {
	done, err := e.Reconcile.Promote(ctx, name, o)
	if err != nil {
		return err
	}
	return a.ui.result(done, func(w io.Writer) error {
		if o.DryRun {
			_, err := fmt.Fprintf(w, "%s would be %s\n", count(done.Changes, "change"), words.done)
			return err
		}
		a.ui.promoted(done, words)
		return nil
	})
}

// promoted prints the result of a promotion, and the changes that were not promoted.
func (u *ui) promoted(p reconcile.Promoted, words promotedWords) {
	if p.ID == "" {
		u.notice("nothing to " + words.verb)
	} else {
		done := count(p.Changes, "change")
		switch n := countCommits(p.Git); {
		case n > 0 && p.Changes == 0:
			done = count(n, "commit")
		case n > 0:
			done += " and " + count(n, "commit")
		}
		u.notice(words.done + " " + done + " to " + p.Target + " (snapfs undo " + p.ID + ")")
	}
	if n := len(p.Already); n > 0 {
		u.notice(count(n, "path") + " already had the result")
	}
	u.commits(p.Sandbox, p.Git)
	if p.Left != nil {
		p.Elsewhere = 0 // Left names them
	}
	u.printLeftOut(p.Skipped, p.Elsewhere, words.elsewhere)
	u.printLeft(p.Left)
}

// printLeft prints the changed paths in left, which stay in the sandbox because the section [result] of its
// profile does not name them.
func (u *ui) printLeft(left []string) {
	var texts []string
	for _, path := range left {
		texts = append(texts, "outside the result: "+pathlist.Printable(path))
	}
	u.noticeSome(texts, "outside the result")
}

// noticeSome prints the first ten of texts as notices, and the number of the others, which of describes.
func (u *ui) noticeSome(texts []string, of string) {
	const most = 10
	for _, text := range texts[:min(len(texts), most)] {
		u.notice(text)
	}
	if rest := len(texts) - most; rest > 0 {
		u.notice(fmt.Sprintf("and %d more %s", rest, of))
	}
}
