package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/spf13/cobra"
)

// printCommits prints the new commits of each branch or tag that the sandbox moved, newest first, and returns
// their number.
func printCommits(w io.Writer, all []gitresult.Report) int {
	for _, repo := range all {
		for _, ref := range repo.Refs {
			fmt.Fprintf(w, "commits on %s:\n", visible(shortRef(ref.Ref)))
			for _, c := range ref.Commits {
				fmt.Fprintf(w, "%.7s  %s (%s)\n", c.ID, visible(c.Subject), visible(c.Author))
			}
			if ref.More > 0 {
				fmt.Fprintf(w, "… and %s\n", count(ref.More, "more commit"))
			}
			if len(ref.Commits) == 0 {
				fmt.Fprintf(w, "%.7s  no new commit\n", ref.To)
			}
		}
	}
	return countCommits(all)
}

// countCommits returns the number of new commits. A commit that several branches have counts once.
func countCommits(all []gitresult.Report) (n int) {
	seen := map[string]bool{}
	for _, repo := range all {
		for _, ref := range repo.Refs {
			n += ref.More
			for _, c := range ref.Commits {
				if !seen[c.ID] {
					seen[c.ID] = true
					n++
				}
			}
		}
	}
	return n
}

// shortRef returns the short name of a git ref, as git shows it: "main" for "refs/heads/main".
func shortRef(ref string) string {
	for _, prefix := range []string{"refs/heads/", "refs/"} {
		if short, ok := strings.CutPrefix(ref, prefix); ok {
			return short
		}
	}
	return ref
}

// commitLines returns a line for each branch or tag that the sandbox moved. The line says how a promotion
// treats its commits, such as "merged as 1a2b3c4".
func commitLines(all []gitresult.Report) (lines []string) {
	for _, repo := range all {
		for _, ref := range repo.Refs {
			line := shortRef(ref.Ref)
			if n := len(ref.Commits) + ref.More; n > 0 {
				line = count(n, "commit") + " of " + line
			}
			switch as := shortRef(ref.As); ref.How {
			case gitresult.FastForward:
				line += ": fast-forward to " + ref.Result[:7]
			case gitresult.Merged:
				line += ": merged as " + ref.Result[:7]
			case gitresult.Rebased:
				line += ": rebased to " + ref.Result[:7]
			case gitresult.Squashed:
				line += ": squashed to " + ref.Result[:7]
			case gitresult.Branched:
				line += ": branch " + as
			case gitresult.Stored:
				line += ": stored as " + as
				if ref.Why != "" {
					line += " (" + ref.Why + ")"
				}
			}
			lines = append(lines, visible(line))
		}
	}
	return lines
}

// commits prints how a promotion from the sandbox called name has treated new commits. If a branch has moved
// in the real repository too, it adds the command that merges them.
func (u *ui) commits(name string, all []gitresult.Report) {
	for _, line := range commitLines(all) {
		u.notice(line)
	}
	for _, repo := range all {
		for _, ref := range repo.Refs {
			if ref.How == gitresult.Stored && strings.HasSuffix(ref.Why, " has moved") {
				u.hint("snapfs promote " + name + " --merge")
				return
			}
		}
	}
}

// gitFlags hold the flags that say how a promotion treats the sandbox's commits, such as --merge.
type gitFlags struct{ gitresult.Options }

func (g *gitFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&g.Merge, "merge", false, "join a git branch that has moved by a merge commit")
	f.BoolVar(&g.Rebase, "rebase", false, "copy the commits onto a git branch that has moved")
	f.BoolVar(&g.Squash, "squash", false, "make one git commit of the commits; needs -m")
	f.StringVarP(&g.Message, "message", "m", "", "the `message` of the commit that --squash or --merge makes")
	f.StringVar(&g.AsBranch, "as-branch", "", "make a new git `branch` of the commits and change no file")
	cmd.MarkFlagsMutuallyExclusive("merge", "rebase", "squash", "as-branch")
}

// gitArgs returns the flags that select these options for commits, each after a space, for a command in a
// hint.
func gitArgs(g gitresult.Options) string {
	switch {
	case g.Merge:
		return " --merge"
	case g.Rebase:
		return " --rebase"
	case g.Squash:
		return " --squash -m MESSAGE"
	case g.AsBranch != "":
		return " --as-branch " + g.AsBranch
	}
	return ""
}

// check returns a usage error if flags about commits are set that exclude each other.
func (g *gitFlags) check() error {
	switch {
	case g.Squash && strings.TrimSpace(g.Message) == "":
		return usageError(errors.New("--squash requires -m MESSAGE"))
	case g.Message != "" && !g.Squash && !g.Merge:
		return usageError(errors.New("-m requires --squash or --merge"))
	}
	return nil
}

func newFetch(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "fetch sandbox",
		Short: "bring a sandbox's git commits, and no files",
		Long: `Copies the commits that were made in a sandbox into the repository of its workspace, and
stores its branches as refs/snapfs/SANDBOX/BRANCH. No file, no branch and no index
changes, so you can look first: git log snapfs/SANDBOX/main. "snapfs promote" brings the
files and moves the branch; "snapfs undo" takes the refs back.`,
		Example:           "  snapfs fetch fix\n  git diff main...snapfs/fix/main",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine(cmd.Context())
			if err != nil {
				return err
			}
			var o reconcile.PromoteOptions
			o.Git.FetchOnly = true
			done, err := e.Reconcile.Promote(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return a.ui.result(done, func(io.Writer) error {
				a.ui.promoted(done, promoteWords)
				return nil
			})
		},
	}
}
