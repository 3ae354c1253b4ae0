package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/pick"
	"github.com/spf13/cobra"
)

// pickArgs returns a usage error for flags of `snapfs promote` that cannot be used with --patch.
func (a *app) pickArgs(cmd *cobra.Command) error {
	for _, flag := range []string{"to", "continue", "cancel", "plan", "target", "merge", "rebase", "squash", "as-branch"} {
		if cmd.Flags().Changed(flag) {
			return usageError(errors.New("--patch excludes --" + flag))
		}
	}
	if a.ui.json {
		return usageError(errors.New("--patch excludes --json"))
	}
	return nil
}

// promotePicked asks a person about each change of a sandbox, and promotes only the changes that the person
// has picked.
func (a *app) promotePicked(ctx context.Context, e *engine.Engine, name string, o reconcile.PromoteOptions) error {
	workspace, err := e.WorkspaceOf(name)
	if err != nil {
		return err
	}
	p := picking{ui: a.ui, name: name, workspace: workspace}
	done, err := pick.Promote(ctx, e, name, o, p.ask)
	switch {
	case err != nil:
		return err
	case !done.Picked && p.asked == 0:
		a.ui.notice("nothing to promote")
		return nil
	case !done.Picked:
		a.ui.notice("nothing was picked, and nothing promoted")
		return nil
	case o.DryRun:
		_, err := fmt.Fprintf(a.ui.out, "%s would be promoted\n", count(done.Changes, "change"))
		return err
	}
	a.ui.promoted(done.Promoted, promoteWords)
	if done.Left > 0 {
		a.ui.notice("what was not picked stays in the sandbox (snapfs diff " + name + ")")
	}
	return nil
}

// A picking is one conversation of `snapfs promote --patch`, in which a person decides about each change of a
// sandbox.
type picking struct {
	ui              *ui
	name, workspace string
	asked           int
	last            string // the path of the last question
}

// pickAnswers returns the letters that a person may type as the answer to a question about a change, in the
// order of the help, and the meaning of each.
func pickAnswers(q pick.Question) (letters string, means map[byte]pick.Answer) {
	means = map[byte]pick.Answer{'y': pick.Take, 'n': pick.Leave, 'q': pick.Quit}
	letters = "yn"
	if q.Hunk != nil {
		means['a'], means['d'] = pick.TakeRest, pick.LeaveRest
		letters += "ad"
	}
	if q.Splits {
		means['s'] = pick.Split
		letters += "s"
	}
	return letters + "q", means
}

var pickHelp = [...]string{
	"y  promote this", "n  leave this in the sandbox", "a  promote this and all later hunks of the file",
	"d  leave this and all later hunks of the file", "s  split this hunk into smaller ones",
	"q  leave this and all that follows; promote what was picked", "?  print this help",
}

// ask shows a change and asks whether to promote it. It reads the answer from standard input, a terminal or
// not.
func (p *picking) ask(q pick.Question) (pick.Answer, error) {
	p.asked++
	if err := p.show(q); err != nil {
		return pick.Leave, err
	}
	letters, means := pickAnswers(q)
	question := "promote this hunk"
	if q.Hunk == nil {
		question = "promote this change"
	}
	question = fmt.Sprintf("(%d/%d) %s [%s,?]", q.Number, q.Of, question, strings.Join(strings.Split(letters, ""), ","))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if p.ui.lines == nil {
		p.ui.lines = make(chan string)
		go p.ui.listen()
	}
	for {
		fmt.Fprint(p.ui.err, question+" ")
		select {
		case line, more := <-p.ui.lines:
			if !more {
				fmt.Fprintln(p.ui.err)
				return pick.Leave, &errs.Error{
					Op: "promoting", Subject: p.name, Kind: errs.ErrInvalid, Err: errors.New("the input ended before the last question, and nothing was promoted"),
					Hints: []string{"snapfs promote --patch " + p.name},
				}
			}
			if len(line) == 1 {
				if answer, ok := means[line[0]]; ok {
					return answer, nil
				}
			}
			for _, help := range pickHelp {
				if help[0] == '?' || strings.Contains(letters, help[:1]) {
					fmt.Fprintln(p.ui.err, help)
				}
			}
		case <-ctx.Done():
			fmt.Fprintln(p.ui.err)
			return pick.Leave, &errs.Error{Op: "promoting", Subject: p.name, Kind: errs.ErrInterrupted, Err: errors.New("interrupted, and nothing was promoted")}
		}
	}
}

// show prints the change about which the next question is. Before the first question about a file it prints
// the line of the file.
func (p *picking) show(q pick.Question) error {
	if q.Path != p.last {
		c := q.Change
		c.Path = p.relative(q.Path)
		rows := report.Rows([]diff.Change{c}, nil)
		if q.Move != nil {
			rows[0].From = p.relative(filepath.Join(q.Root, q.Move.From))
		}
		if err := report.Table(p.ui.err, rows); err != nil {
			return err
		}
		p.last = q.Path
	}
	switch {
	case q.Hunk == nil:
		return nil
	case p.ui.colours(p.ui.err):
		w := patch.NewPainter(p.ui.err, tame)
		return errors.Join(q.Hunk(w), w.Close())
	}
	return q.Hunk(&tamer{w: p.ui.err})
}

// relative returns path relative to the workspace if it lies there, and otherwise unchanged.
func (p *picking) relative(path string) string {
	if rel, err := filepath.Rel(p.workspace, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
