package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// mentionsOf returns the texts in which [attempts.Mentions.Hidden] searches for the hidden paths that a failed
// command mentions: its arguments, and its last output, from tty.
func mentionsOf(command engine.Command, tty *terminal) attempts.Mentions {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // then ~ is not expanded
	}
	return attempts.Mentions{Args: command.Args, Output: tty.tail(), Dir: command.Dir, Home: home}
}

// printHidden prints which of the paths that a failed command mentions are hidden from its sandbox, with the
// command's exit status, and then hints. It does not say that the command failed for them, which is not
// known.
func (a *app) printHidden(status int, hidden []attempts.HiddenPath, hints ...string) {
	for i, h := range hidden {
		text := pathlist.Printable(h.Path) + " is hidden from the sandbox"
		if h.Path != h.Place {
			text += ", as all of " + pathlist.Printable(h.Place)
		}
		if hostfs.Redacted(h.Place) {
			text += ", which has a read-only copy without passwords"
		}
		if i == 0 {
			text = fmt.Sprintf("status %d; ", status) + text
		}
		a.ui.notice(text)
	}
	a.ui.hint(hints...)
}

// hiddenIn returns the paths, hidden from the session's sandbox, that its failed command mentions. places are the
// hidden ones. It returns none for a command that did not fail by itself. For a sandbox whose files are observed it
// returns only the files that are shown redacted: the list of attempts has the others.
func hiddenIn(s *engine.Session, places attempts.Places, mentions attempts.Mentions, st engine.Status) []attempts.HiddenPath {
	p := &s.Record.Policy
	if st.ExitCode() == 0 || st.Signal != 0 || s.Hit != nil {
		return nil
	}
	hidden := mentions.Hidden(places)
	if p.Result != nil || p.Observe {
		hidden = slices.DeleteFunc(hidden, func(h attempts.HiddenPath) bool { return !hostfs.Redacted(h.Place) })
	}
	return hidden
}

// explainHidden prints which hidden paths a command in the sandbox called name mentions, if it failed.
func (a *app) explainHidden(ctx context.Context, e *engine.Engine, name string, mentions attempts.Mentions, st engine.Status) {
	if st.ExitCode() == 0 || st.Signal != 0 || a.ui.json {
		return
	}
	rec, err := e.Catalog().Get(name)
	if err != nil || rec.Policy.Observe {
		return
	}
	if len(rec.Policy.Hide) == 0 && !mentions.Outside(rec.Workspace) {
		return // the search for hidden paths takes milliseconds
	}
	paths, _, err := e.Host.Masked(ctx, rec)
	if err != nil {
		return // the command has ended, and this would only explain its status
	}
	if hidden := mentions.Hidden(attempts.PlacesOf(paths, rec.Policy.Hide)); len(hidden) > 0 {
		a.printHidden(st.ExitCode(), hidden, "snapfs show "+errs.Quoted(name), "snapfs new --expose "+errs.Quoted(hostfs.ExposeFlag(hidden[0].Place))+" …")
	}
}
