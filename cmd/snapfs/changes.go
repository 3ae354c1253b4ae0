package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/gitresult"
)

// screenful is how many changes of the workspace a list on a terminal shows; of those outside the workspace
// it shows a fifth of that. A list to a file or a pipe shows all changes.
const screenful = 50

// The bounds of a list of paths to a file or a pipe. If its paths are together longer than deepOutput bytes,
// all paths in a directory more than deepLevels deep share a line. Without that, a nest of 3,000 directories
// would print 455 MB.
const (
	deepOutput = 32 << 20
	deepLevels = 64
)

// lengthOf returns how many bytes the paths of the rows of a list of changes have together.
func lengthOf(rows []report.Row) (n int) {
	for _, r := range rows {
		n += len(r.Path) + len(r.From)
	}
	return n
}

// printTable prints a table of changes: first those of the workspace, by relative path, and then those
// outside of it. It leaves out directories of which only the time changed. most is how many changes of the
// workspace are shown (0: all), and all is the command that prints everything. A closed pipe is not an error,
// because its reader stopped early.
func printTable(w io.Writer, changes *compare.Changes, most int, all string) error {
	if err := printChanges(w, changes, most, all); !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

func printChanges(w io.Writer, changes *compare.Changes, most int, all string) error {
	var inside, elsewhere []report.Row
	var sum diff.Summary
	renamed := 0
	for _, p := range changes.Parts {
		told := slices.DeleteFunc(slices.Clone(p.Changes), diff.Change.TimeOnly)
		sum.Add(diff.Summarise(told))
		renamed += diff.Paths(p.Renames)
		if rows := report.Rows(told, p.Renames); p.Workspace {
			inside = append(inside, rows...)
		} else {
			elsewhere = append(elsewhere, withAbsolutePaths(rows, p.Root)...)
		}
	}
	if len(inside) > 0 {
		if err := printList(w, inside, most, all); err != nil {
			return err
		}
	}
	if len(elsewhere) > 0 {
		fmt.Fprintln(w, "elsewhere:")
		if err := printList(w, elsewhere, most/5, all); err != nil {
			return err
		}
	}
	commits := 0
	if len(changes.Git) > 0 {
		commits = printCommits(w, changes.Git)
	}
	_, err := fmt.Fprintln(w, summary(sum, renamed, commits))
	return err
}

// withAbsolutePaths returns the rows of a list of changes with the directory root put before each path.
func withAbsolutePaths(rows []report.Row, root string) []report.Row {
	for i := range rows {
		r := &rows[i]
		r.Path = filepath.Join(root, r.Path)
		if r.From != "" {
			r.From = filepath.Join(root, r.From)
		}
	}
	return rows
}

func printList(w io.Writer, all []report.Row, most int, how string) error {
	rows := all
	switch {
	case most > 0:
		rows = report.Fold(all, most)
	case lengthOf(all) > deepOutput:
		if rows = report.FoldBelow(all, deepLevels); len(rows) < len(all) {
			how = "all: --json"
		}
	}
	folded := len(rows) < len(all)
	left := 0
	if most > 0 && len(rows) > most {
		left, rows = len(rows)-most, rows[:most]
	}
	if err := report.Table(w, rows); err != nil {
		return err
	}
	switch {
	case left > 0:
		fmt.Fprintf(w, "… and %s (%s)\n", count(left, "more line"), how)
	case folded:
		fmt.Fprintf(w, "… %s, of which some share a line (%s)\n", count(len(all), "path"), how)
	}
	return nil
}

// summary describes how many paths were added, changed, deleted and renamed, in one line. s counts a rename
// as an added and a deleted path; renamed is the number of renames, and commits that of new commits.
func summary(s diff.Summary, renamed, commits int) string {
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{s.Added - renamed, "added"}, {s.Modified, "modified"}, {s.Deleted - renamed, "deleted"}, {renamed, "renamed"}} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	if commits > 0 {
		parts = append(parts, count(commits, "commit"))
	}
	if len(parts) == 0 {
		return "nothing changed"
	}
	return strings.Join(parts, ", ")
}

// printParts calls print for each part of the changes (one for each root directory). It prints a heading with
// the root directory of a part outside the workspace.
func printParts(w io.Writer, changes *compare.Changes, print func(p compare.Part) error) error {
	for _, p := range changes.Parts {
		if !p.Workspace {
			if _, err := fmt.Fprintf(w, "# in %s:\n", report.Printable(p.Root)); err != nil {
				return err
			}
		}
		if err := print(p); err != nil {
			return err
		}
	}
	return nil
}

// printPatch prints the changes as patches, relative to the root directory of each part. On a terminal,
// control characters are made visible, and with colours set the patches are coloured. A file or a pipe gets
// every byte unchanged.
func printPatch(ctx context.Context, w io.Writer, changes *compare.Changes, terminal, colours bool) error {
	done := func() error { return nil }
	switch {
	case colours:
		p := patch.NewPainter(w, tame)
		w, done = p, p.Close
	case terminal:
		w = &tamer{w: w}
	}
	err := printParts(w, changes, func(p compare.Part) error {
		return patch.Write(ctx, w, p.Old, p.New, p.Changes, patch.Options{Renames: p.Renames})
	})
	return errors.Join(err, done())
}

// printStat prints for each changed file how many lines were added and deleted, as git diff --stat does.
// width is the width of the terminal in characters.
func printStat(ctx context.Context, w io.Writer, changes *compare.Changes, width int) error {
	return printParts(w, changes, func(p compare.Part) error {
		return patch.Stat(ctx, w, p.Old, p.New, p.Changes, width, p.Renames...)
	})
}

// maxSplit is how many notices `snapfs diff` prints about files with several hard links of which the sandbox
// changed only one name; a last notice counts the others.
const maxSplit = 3

// reservations prints notices about changes of the sandbox called name that may surprise: lost directories,
// and files with several hard links of which it changed only one name.
func (u *ui) reservations(changes *compare.Changes, name string) {
	for _, p := range changes.Parts {
		for _, l := range p.LostDirs {
			u.notice(report.Printable(l.Path) + ": " + l.Why())
			u.hint("snapfs plan " + name + "   # shows how to mend it")
		}
		for i, s := range p.Split {
			if i == maxSplit {
				u.notice(count(len(p.Split)-i, "more file") + " changed under one of several names (hard links)")
				break
			}
			u.notice(report.Printable(s.Path) + ": " + s.Why())
			u.hint(s.Hints(name)...)
		}
	}
}

// A changesDocument is the JSON form of a list of changes, as `snapfs diff --json` prints it.
type changesDocument struct {
	Parts []partDocument `json:"parts"`
	// Git are the refs that the sandbox moved, with their commits.
	Git []gitresult.Report `json:"git,omitempty"`
}

type partDocument struct {
	// Root is the directory that the paths are relative to.
	Root      string `json:"root"`
	Workspace bool   `json:"workspace"`
	report.Document
	// Lost are renamed directories of which the real tree had the entries and has them no more.
	Lost []compare.LostDir `json:"lost,omitempty"`
	// Split are files that were changed under one of several hard links.
	Split []compare.SplitLink `json:"split,omitempty"`
}

func documentOf(changes *compare.Changes) changesDocument {
	d := changesDocument{Parts: []partDocument{}, Git: changes.Git}
	for _, p := range changes.Parts {
		d.Parts = append(d.Parts, partDocument{p.Root, p.Workspace, report.Of(p.Changes, p.Renames...), p.LostDirs, p.Split})
	}
	return d
}
