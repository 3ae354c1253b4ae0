//go:build linux

package bench

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/snapfs/snapfs/bench/timing"
)

// Markdown writes the report as tables for BENCHMARKS.md. command is the command line that repeats the
// measurement.
func (r *Report) Markdown(w io.Writer, command string) error {
	p := &printer{w: w}
	e := r.Environment
	p.line("# Benchmarks")
	p.line("")
	p.line("Made by `%s` with %s.", command, r.Options)
	p.line("")
	p.table([]string{"environment", ""}, [][]string{
		{"date", e.Date},
		{"commit", e.Commit},
		{"kernel", e.Kernel + ", " + e.System},
		{"machine", fmt.Sprintf("%d × %s, %s", e.CPUs, e.CPU, e.Memory)},
		{"disk", e.Disk},
		{"loop", e.Loop},
		{"Go", e.Go},
		{"user", e.User},
		{"load before", e.Load},
	})
	p.promises(r.Promises)
	for _, k := range Kinds() {
		p.results(k, r.Results)
	}
	if len(r.Results) > 0 {
		p.line("## What exactly was timed")
		p.line("")
		var rows [][]string
		for name, meaning := range r.Meanings {
			rows = append(rows, []string{name, meaning})
		}
		sort.Slice(rows, func(i, j int) bool { return rows[i][0] < rows[j][0] })
		p.table([]string{"name", "meaning"}, rows)
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) table(head []string, rows [][]string) {
	p.line("| %s |", strings.Join(head, " | "))
	p.line("|%s", strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = strings.NewReplacer("|", `\|`, "\n", "; ").Replace(cell)
		}
		p.line("| %s |", strings.Join(row, " | "))
	}
	p.line("")
}

func (p *printer) promises(list []Promise) {
	if len(list) == 0 {
		return
	}
	p.line("## Promises")
	p.line("")
	var rows [][]string
	for _, f := range list {
		limit, measured := fmt.Sprintf("%.4g %s", f.Limit, f.Unit), fmt.Sprintf("%.3g %s", f.Measured, f.Unit)
		verdict := "**broken**"
		switch {
		case f.Told:
			limit, verdict = "", "reported"
		case f.missed():
			verdict = fmt.Sprintf("missed (gate: %.4g)", f.Held)
		case f.Holds:
			verdict = "holds"
		}
		if f.Error != "" {
			measured = f.Error
		}
		if f.Noise != "" {
			limit += " (" + f.Noise + ")"
		}
		rows = append(rows, []string{f.Name, measured, limit, verdict, f.Detail})
	}
	p.table([]string{"promise", "measured", "limit", "", "from"}, rows)
}

// title returns the heading in BENCHMARKS.md for a kind of results, such as "latency".
func title(kind string) string {
	switch kind {
	case "latency":
		return "One at a time"
	case "crowd":
		return "A hundred at once"
	case "inside":
		return "Work inside, and on the bare tree"
	case kindAPI:
		return "By the HTTP API of snapfs serve"
	case kindHooks:
		return "Hooks of a coding agent"
	case kindLayers:
		return "Work on a layer above a tree, and on the tree"
	}
	return "Alternatives"
}

func (p *printer) results(kind string, all []Result) {
	list := slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return r.Kind != kind })
	if len(list) == 0 {
		return
	}
	p.line("## %s", title(kind))
	p.line("")
	var rows [][]string
	for _, r := range list {
		rows = append(rows, r.cells(kind))
	}
	head := []string{"what", "with", "tree"}
	if kind == "inside" || kind == kindLayers {
		head[2] = "to bare"
	}
	p.table(append(head, "n", "min", "p50", "p95", "p99"), rows)
}

func (r Result) cells(kind string) []string {
	tree := ""
	if r.Files > 0 {
		tree = fmt.Sprintf("%d files", r.Files)
	}
	if r.Dirty {
		tree += ", dirty"
	}
	if (kind == "inside" || kind == kindLayers) && r.Ratio > 0 {
		tree = fmt.Sprintf("%.2f ×", r.Ratio)
	}
	cells := []string{r.What, r.Setting, tree}
	if r.N == 0 {
		return append(cells, r.Error, "", "", "", "")
	}
	n := fmt.Sprint(r.N)
	if r.Error != "" {
		n += ", then " + r.Error
	}
	return append(cells, n, timing.Short(r.Min), timing.Short(r.P50), timing.Short(r.P95), timing.Short(r.P99))
}
