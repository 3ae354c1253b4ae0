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

// The bounds of a plan's lines: a longer note is cut at maxNote bytes, and paths are aligned up to
// maxAligned characters, so that one long path does not pad every line.
const (
	maxNote    = 4 << 10
	maxAligned = 80
)

// A planLine is one line of a plan: what happens to a path of the target, or to several.
type planLine struct{ do, path, note string }

// planLines returns the lines of a plan in three lists: the steps, the conflicts, and what needs
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
	for _, h := range p.NeedsApproval {
		lists[2] = append(lists[2], line("needs approval", h.Path, visible(h.Why)))
	}
	return lists
}

// printLines prints lists of lines, aligned. most bounds the lines of each list (0: no bound); where
// the paths of one are longer than deepOutput bytes, those that lie too deep share a line. A line
// says how much a list leaves out, and that how prints all of it.
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

// boundLines returns the lines of a list that are printed, and what is said of the others; "" if
// there are none.
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

// shareDeep returns lines in which neighbours of one kind share a line if they lie in the same
// directory at the depth of deepLevels.
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

// deepDir returns the directory at the depth of deepLevels in which a path lies, with a slash; ""
// if the path does not lie that deep.
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
