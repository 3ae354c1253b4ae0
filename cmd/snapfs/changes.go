package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/engine/diff/report"
)

// screenful is how many changes of the workspace a terminal is shown, and a
// fifth of it how many elsewhere. A file or a pipe gets all.
const screenful = 50

// printTable prints what changed: in the workspace, by paths relative to it, and
// then elsewhere. Of a directory whose time alone differs nothing is told: some
// name in it came and went. most bounds the first list; 0 is no bound. all is what shows
// the rest. A reader who has gone is no error: he has seen what he wanted.
func printTable(w io.Writer, changes *engine.Changes, most int, all string) error {
	if err := printChanges(w, changes, most, all); !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

func printChanges(w io.Writer, changes *engine.Changes, most int, all string) error {
	var inside, elsewhere []diff.Change
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			if echo(c) {
				continue
			}
			if p.Workspace {
				inside = append(inside, c)
			} else {
				c.Path = filepath.Join(p.Root, c.Path)
				elsewhere = append(elsewhere, c)
			}
		}
	}
	if err := printList(w, inside, most, all); err != nil {
		return err
	}
	if len(elsewhere) > 0 {
		fmt.Fprintln(w, "elsewhere:")
		if err := printList(w, elsewhere, most/5, all); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, summary(append(inside, elsewhere...)))
	return err
}

func echo(c diff.Change) bool { return c.What == diff.Time && c.New.Mode.IsDir() }

func printList(w io.Writer, changes []diff.Change, most int, all string) error {
	rows := changes
	if most > 0 && len(rows) > most {
		if rows = folded(rows); len(rows) > most {
			rows = rows[:most]
		}
	}
	if err := report.Table(w, rows); err != nil {
		return err
	}
	if left := len(changes) - len(rows); left > 0 {
		fmt.Fprintf(w, "… and %s (%s)\n", count(left, "more path"), all)
	}
	return nil
}

// folded leaves out what lies beneath directories that came or went.
func folded(changes []diff.Change) []diff.Change {
	var rows []diff.Change
	whole := ""
	for _, c := range changes {
		if whole != "" && strings.HasPrefix(c.Path, whole) {
			continue
		}
		whole = ""
		if c.Kind == diff.Added && c.New.Mode.IsDir() || c.Kind == diff.Deleted && c.Old.Mode.IsDir() {
			whole = c.Path + "/"
		}
		rows = append(rows, c)
	}
	return rows
}

// summary says what happened to how many paths.
func summary(changes []diff.Change) string {
	s := diff.Summarise(changes)
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{s.Added, "added"}, {s.Modified, "modified"}, {s.Deleted, "deleted"}} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	if len(parts) == 0 {
		return "nothing changed"
	}
	return strings.Join(parts, ", ")
}

// printParts prints each part by itself, those elsewhere under the directory
// that their paths are relative to.
func printParts(w io.Writer, changes *engine.Changes, print func(p engine.Part) error) error {
	for _, p := range changes.Parts {
		if !p.Workspace {
			if _, err := fmt.Fprintf(w, "# beneath %s:\n", report.Printable(p.Root)); err != nil {
				return err
			}
		}
		if err := print(p); err != nil {
			return err
		}
	}
	return nil
}

// printPatch prints the changes as patches, each relative to its part's root.
func printPatch(ctx context.Context, w io.Writer, changes *engine.Changes, terminal bool) error {
	if terminal {
		w = &tamer{w: w}
	}
	return printParts(w, changes, func(p engine.Part) error { return patch.Write(ctx, w, p.Old, p.New, p.Changes) })
}

// printStat prints how many lines each file gained and lost.
func printStat(ctx context.Context, w io.Writer, changes *engine.Changes, width int) error {
	return printParts(w, changes, func(p engine.Part) error { return patch.Stat(ctx, w, p.Old, p.New, p.Changes, width) })
}

// A changesDocument is what changed, as JSON.
type changesDocument struct {
	Parts []partDocument `json:"parts"`
}

type partDocument struct {
	// Root is what the paths are relative to.
	Root      string `json:"root"`
	Workspace bool   `json:"workspace"`
	report.Document
}

func documentOf(changes *engine.Changes) changesDocument {
	d := changesDocument{Parts: []partDocument{}}
	for _, p := range changes.Parts {
		d.Parts = append(d.Parts, partDocument{p.Root, p.Workspace, report.Of(p.Changes)})
	}
	return d
}
