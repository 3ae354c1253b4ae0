package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// The bounds of a plan's lines. A note longer than maxNote bytes is cut. Paths are aligned in a column of at
// most maxAligned characters, so that one long path does not pad every line.
const (
	maxNote    = 4 << 10
	maxAligned = 80
)

// A planLine is one line of a printed plan: what the promotion does with a path of the target, or with
// several, and a note.
type planLine struct{ do, path, note string }

// planLines returns the lines of a plan in three lists: the steps, the conflicts, and the changes that need
// approval.
func planLines(p *reconcile.Plan) (lists [3][]planLine) {
	line := func(do, path, note string) planLine {
		return planLine{do, report.Printable(relativeTo(p.Target, path)), note}
	}
	for _, s := range p.Steps {
		if s.TimeOnly() || s.Git {
			continue
		}
		note := ""
		switch {
		case s.Merged:
			note = "merged with the real tree's version"
		case s.From != "":
			note = "from " + report.Printable(relativeTo(p.Target, s.From))
		case s.Do == "change" && s.What[0] != "content":
			note = strings.Join(s.What, ", ")
		}
		lists[0] = append(lists[0], line(s.Do, s.Path, note))
	}
	for _, c := range p.Conflicts {
		lists[1] = append(lists[1], line("conflict", c.Path, visible(c.Why)))
	}
	for _, l := range p.Labelled {
		lists[2] = append(lists[2], line("refused", l.Path, visible(l.Why)))
	}
	for _, h := range p.NeedsApproval {
		lists[2] = append(lists[2], line("needs approval", h.Path, visible(h.Why)))
	}
	return lists
}

// printLines prints the lists of a plan's lines, aligned. most is how many lines of each list are printed (0:
// all). If the paths of a list are together longer than deepOutput bytes, paths that lie too deep share a
// line. A last line says how many lines are left out, and with how, the command that prints all.
func printLines(w io.Writer, lists [3][]planLine, most int, how string) error {
	left := [3]string{}
	columns := [2]int{}
	for i, list := range lists {
		lists[i], left[i] = boundLines(list, most, how)
		for _, l := range lists[i] {
			columns[0] = max(columns[0], len(l.do))
			if n := utf8.RuneCountInString(l.path); n <= maxAligned {
				columns[1] = max(columns[1], n)
			}
		}
	}
	for i, list := range lists {
		for _, l := range list {
			text := fmt.Sprintf("%-*s  %-*s  %s", columns[0], l.do, columns[1], l.path, l.note)
			if _, err := fmt.Fprintln(w, strings.TrimRight(text, " ")); err != nil {
				return err
			}
		}
		if left[i] != "" {
			if _, err := fmt.Fprintln(w, left[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// boundLines returns the lines of a list that are printed, at most most, and a text about those left out,
// which names how, the command that prints all; "" if there are none.
func boundLines(all []planLine, most int, how string) (lines []planLine, left string) {
	size := 0
	for _, l := range all {
		size += len(l.path) + min(len(l.note), maxNote)
	}
	lines = all
	if size > deepOutput {
		lines, how = shareDeep(all), "all: --json"
		left = fmt.Sprintf("… %s, of which some share a line (%s)", count(len(all), "path"), how)
	}
	if most > 0 && len(lines) > most {
		left = fmt.Sprintf("… and %s (%s)", count(len(lines)-most, "more line"), how)
		lines = lines[:most]
	}
	size = 0
	for i := range lines {
		if l := &lines[i]; len(l.note) > maxNote {
			l.note = strings.ToValidUTF8(l.note[:maxNote], "") + "…"
		}
		if size += len(lines[i].path) + len(lines[i].note); size > deepOutput {
			return lines[:i], fmt.Sprintf("… and %s (%s)", count(len(lines)-i, "more line"), "all: --json")
		}
	}
	return lines, left
}

// shareDeep shortens a list of lines: neighbouring lines of one kind become one line if their paths lie in
// the same directory deepLevels (64) levels deep.
func shareDeep(all []planLine) (lines []planLine) {
	for i := 0; i < len(all); {
		dir, n := deepDir(all[i].path), 1
		for dir != "" && i+n < len(all) && all[i+n].do == all[i].do && deepDir(all[i+n].path) == dir {
			n++
		}
		if n == 1 {
			lines = append(lines, all[i])
		} else {
			lines = append(lines, planLine{all[i].do, dir, count(n, "path")})
		}
		i += n
	}
	return lines
}

// deepDir returns the directory, deepLevels deep, in which path lies, with a slash at its end; "" if path
// does not lie that deep.
func deepDir(path string) string {
	end := 0
	for range deepLevels {
		i := strings.IndexRune(path[end:], filepath.Separator)
		if i < 0 {
			return ""
		}
		end += i + 1
	}
	return path[:end]
}
