package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/workflow/race"
)

// A raceDocument is the JSON form of `snapfs race`: how each attempt ended, and which one won.
type raceDocument struct {
	*race.Race
	// Picked is the number of the attempt that a person chose, 0 for none.
	Picked int `json:"picked,omitempty"`
	// Promoted is the winner's promotion, or nil.
	Promoted *reconcile.Promoted `json:"promoted,omitempty"`
	// Kept are the names of the sandboxes that remain after the race.
	Kept []string `json:"kept"`
}

// printRace prints the result of a race: a line for each attempt, and the differences between their changes.
func printRace(w io.Writer, r *race.Race) error {
	if err := printAttempts(w, r.Attempts, time.Time{}); err != nil {
		return err
	}
	return printComparison(w, r)
}

// printAttempts prints a line for each attempt of a race, with the time that it took. For a running attempt
// that is the time until now.
func printAttempts(w io.Writer, attempts []race.Attempt, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	scored := false
	for _, a := range attempts {
		scored = scored || a.Score != nil
	}
	head := []string{"TRY", "STATE", "TIME", "CHECK"}
	if scored {
		head = append(head, "SCORE")
	}
	fmt.Fprintln(t, strings.Join(append(head, "CHANGES", "DRIFT"), "\t"))
	for _, a := range attempts {
		row := []string{strconv.Itoa(a.Number), stateOfAttempt(a), tookOf(a, now), checkOf(a)}
		if scored {
			row = append(row, scoreOf(a))
		}
		fmt.Fprintln(t, strings.Join(append(row, changesOf(a), driftOfAttempt(a)), "\t"))
	}
	return t.Flush()
}

func stateOfAttempt(a race.Attempt) string {
	if a.State == race.Failed && a.Ended != nil && a.Ended.Status != 0 {
		return fmt.Sprintf("failed (%d)", a.Ended.Status)
	}
	return string(a.State)
}

func tookOf(a race.Attempt, now time.Time) string {
	took := a.Took
	switch {
	case a.Started.IsZero():
		return "-"
	case !a.State.Final() && !now.IsZero():
		took = now.Sub(a.Started)
	}
	if took < time.Minute {
		return fmt.Sprintf("%.1fs", took.Seconds())
	}
	return took.Round(time.Second).String()
}

func checkOf(a race.Attempt) string {
	switch {
	case a.Checked == nil:
		return "-"
	case a.Checked.Status == 0:
		return "ok"
	}
	return "status " + strconv.Itoa(a.Checked.Status)
}

func scoreOf(a race.Attempt) string {
	if a.Score == nil {
		return "-"
	}
	return strconv.FormatFloat(*a.Score, 'g', -1, 64)
}

func changesOf(a race.Attempt) string {
	s := a.Size
	if s == nil {
		return "-"
	}
	text := fmt.Sprintf("%s +%d -%d", count(s.Paths, "path"), s.Added, s.Deleted)
	switch {
	case s.Paths == 0:
		text = "none"
	case s.Unread:
		text = count(s.Paths, "path")
	}
	if s.Elsewhere > 0 {
		text += fmt.Sprintf(", %d elsewhere", s.Elsewhere)
	}
	return text
}

func driftOfAttempt(a race.Attempt) string {
	switch d := a.Drift; {
	case d == nil:
		return "-"
	case d.Paths == 0:
		return "none"
	case d.Both > 0:
		return fmt.Sprintf("%s, %d changed here too", count(d.Paths, "path"), d.Both)
	default:
		return count(d.Paths, "path")
	}
}

// printComparison prints a row for each path that at least one attempt of a race changed, up to a screenful.
// For each attempt the row has a letter that stands for the attempt's version of the path, or a dot if it did
// not change the path.
func printComparison(w io.Writer, r *race.Race) error {
	var in []int
	for _, a := range r.Attempts {
		if a.State == race.Passed || a.State == race.Failed {
			in = append(in, a.Number)
		}
	}
	if len(in) < 2 || len(r.Compared.Paths) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprint(t, "\nPATH")
	for _, n := range in {
		fmt.Fprintf(t, "\t%d", n)
	}
	fmt.Fprintln(t)
	shown := r.Compared.Paths
	if len(shown) > screenful {
		shown = shown[:screenful]
	}
	for _, p := range shown {
		version := map[int]string{}
		for i, group := range p.Alike {
			for _, n := range group {
				version[n] = letter(i)
			}
		}
		fmt.Fprint(t, report.Printable(p.Path))
		for _, n := range in {
			if version[n] == "" {
				version[n] = "."
			}
			fmt.Fprint(t, "\t", version[n])
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(r.Compared.Paths) - len(shown); more > 0 {
		fmt.Fprintf(w, "… and %s (--json has all)\n", count(more, "more path"))
	}
	for _, g := range r.Compared.Identical {
		fmt.Fprintln(w, "same result: "+numbers(g))
	}
	return nil
}

// letter returns the label of the i-th version of a path in the comparison of attempts: a to z, then a1, b1
// and so on.
func letter(i int) string {
	name := string(rune('a' + i%26))
	if i >= 26 {
		name += strconv.Itoa(i / 26)
	}
	return name
}

// numbers formats a list of numbers, such as those of attempts, for a sentence: "1, 2 and 3".
func numbers(list []int) string {
	var b strings.Builder
	for i, n := range list {
		switch {
		case i > 0 && i == len(list)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// tails prints why attempts of a race failed, with the last lines of their output. It also prints the reason
// noted for an attempt that passed.
func (r *racer) tails(contest *race.Race) {
	for _, a := range contest.Attempts {
		if a.State == race.Stopped || a.State == race.Passed && a.Why == "" {
			continue
		}
		r.a.ui.notice(fmt.Sprintf("attempt %d: %s", a.Number, whyNot(a)))
		if a.State == race.Passed {
			continue
		}
		for _, file := range []string{a.CheckOutput, a.Output} {
			lines := lastLines(file, r.tail)
			if len(lines) == 0 {
				continue
			}
			r.a.ui.notice("last lines of " + file + ":")
			for _, l := range lines {
				fmt.Fprintln(r.a.ui.err, "  "+tame(l))
			}
			break
		}
	}
}

// whyNot returns a text about why an attempt failed or was stopped: the reason that the race noted, or the
// exit status of its check or command.
func whyNot(a race.Attempt) string {
	switch {
	case a.Why != "":
		return a.Why
	case a.State != race.Failed:
		return string(a.State)
	case a.Checked != nil && a.Checked.Status != 0:
		return fmt.Sprintf("the check exited with status %d", a.Checked.Status)
	default:
		return fmt.Sprintf("the command exited with status %d", a.Ended.Status)
	}
}

// lastLines returns the last lines, no more than most, of the file at path with a command's output. It reads
// at most the last 64 KiB, and returns nil if the file is blank or cannot be read.
func lastLines(path string, most int) []string {
	const end = 64 << 10
	if path == "" || most == 0 {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > end {
		if _, err := f.Seek(-end, io.SeekEnd); err != nil {
			return nil
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, end))
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return lines[max(0, len(lines)-most):]
}
