package main

import (
	"context"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// namedBy returns the texts in which [attempts.Naming.Hidden] searches for hidden paths that a failed command named:
// its arguments, and its last output, from tty.
func namedBy(command engine.Command, tty *terminal) attempts.Naming {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // then ~ is not expanded
	}
	return attempts.Naming{Args: command.Args, Output: tty.tail(), Dir: command.Dir, Home: home}
}

// printNamed prints which of the paths that a failed command named are hidden from its sandbox. It does not say
// that the command failed for them, which is not known.
func (a *app) printNamed(status int, named []attempts.NamedPath) {
	for i, n := range named {
		text := pathlist.Printable(n.Path) + " is hidden from the sandbox"
		if n.Path != n.Place {
			text += ", as all of " + pathlist.Printable(n.Place)
		}
		if i == 0 {
			text = fmt.Sprintf("status %d; ", status) + text
		}
		a.ui.notice(text)
	}
}

// named returns and prints the hidden paths that the command of the run names, if it failed. It returns none for a
// sandbox whose files are observed: the list of attempts has them.
func (r *runner) named(s *engine.Session, command engine.Command, tty *terminal, st engine.Status) []attempts.NamedPath {
	p := &s.Record.Policy
	if st.ExitCode() == 0 || st.Signal != 0 || s.Hit != nil || p.Result != nil || p.Observe {
		return nil
	}
	named := namedBy(command, tty).Hidden(s.Hidden)
	r.a.printNamed(st.ExitCode(), named)
	if len(named) > 0 {
		r.a.ui.hint("snapfs run --expose "+errs.Quoted(named[0].Place)+" …", "snapfs help hidden")
	}
	return named
}

// printNamedIn prints which hidden paths a command in the sandbox called name names, if it failed.
func (a *app) printNamedIn(ctx context.Context, e *engine.Engine, name string, command engine.Command, tty *terminal, st engine.Status) {
	if st.ExitCode() == 0 || st.Signal != 0 || a.ui.json {
		return
	}
	rec, err := e.Catalog().Get(name)
	if err != nil || rec.Policy.Observe {
		return
	}
	n := namedBy(command, tty)
	if len(rec.Policy.Hide) == 0 && !n.Leaves(rec.Workspace) {
		return // the search for hidden paths takes milliseconds
	}
	hidden, _, err := e.Host.Masked(ctx, rec)
	if err != nil {
		return // the command has ended, and this would only explain its status
	}
	if named := n.Hidden(hidden); len(named) > 0 {
		a.printNamed(st.ExitCode(), named)
		a.ui.hint("snapfs show "+errs.Quoted(name), "snapfs new --expose "+errs.Quoted(named[0].Place)+" …")
	}
}
