//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/bench"
)

// A benchmarker is one `snapfs bench`.
type benchmarker struct {
	a                 *app
	o                 bench.Options
	gate, markdown    bool
	file, role, order string
}

func newBench(a *app) *cobra.Command {
	b := benchmarker{a: a}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure this machine, and judge what was promised",
		Long: `Measures how long everything takes here, what work inside a sandbox costs, and
the same done with other programs where they are installed. With --gate it
measures what promises were made about, and fails where one is broken. It works
in a directory of its own beneath /var/tmp and leaves nothing behind. As root it
measures the backends of root and of an ordinary user.`,
		Example: `  sudo snapfs bench --markdown -o numbers.md
  sudo snapfs bench --gate
  snapfs bench --only inside`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.BoolVar(&b.gate, "gate", false, "judge what was promised, and fail where it is broken")
	f.BoolVar(&b.o.Full, "full", false, "measure a tree of a million files too")
	f.BoolVar(&b.o.Quick, "quick", false, "measure too little to be believed: a test of the benchmark")
	f.BoolVar(&b.o.InMemory, "in-memory", false, "measure on an ext4 in memory, so that no disk has a part in it (as root)")
	f.StringSliceVar(&b.o.Only, "only", nil, "measure only these `kinds`: "+strings.Join(bench.Kinds(), ", "))
	f.BoolVar(&b.markdown, "markdown", false, "print promises as rows of BENCHMARKS.md too, as other results are")
	f.StringVarP(&b.file, "output", "o", "", "write the result to this `file`")
	f.StringVar(&b.o.Lab, "lab", "", "the directory that was made for it")
	f.StringVar(&b.role, "role", "", "the part that this process has in it")
	f.StringVar(&b.order, "order", "", "what this process is to measure")
	for _, name := range []string{"lab", "role", "order"} {
		f.Lookup(name).Hidden = true
	}
	return cmd
}

func (b *benchmarker) run(ctx context.Context) error {
	for _, kind := range b.o.Only {
		if !slices.Contains(bench.Kinds(), kind) {
			return usageError{fmt.Errorf("--only %s: there are %s", kind, strings.Join(bench.Kinds(), ", "))}
		}
	}
	switch b.role {
	case bench.RoleWork:
		return bench.Work(ctx, b.o, os.Stdin, os.Stdout)
	case bench.RolePrepare:
		return bench.Prepare(ctx, b.o)
	case bench.RoleClear:
		return bench.Clear(ctx, b.o.Lab)
	case bench.RoleMeasure:
		return bench.Measure(ctx, b.order, os.Stdout)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 && b.o.Lab == "" {
		return b.private(ctx, program)
	}
	if b.o.Lab != "" {
		ctx = bench.Leashed(ctx)
	}
	b.o.Program = program
	b.o.Say = func(s string) { fmt.Fprintln(b.a.ui.err, s) }
	report, err := b.measure(ctx)
	if report != nil {
		err = errors.Join(err, b.print(report))
	}
	if err == nil && len(report.Broken()) > 0 {
		return errSilent
	}
	return err
}

func (b *benchmarker) measure(ctx context.Context) (*bench.Report, error) {
	if b.gate {
		return bench.Gate(ctx, b.o)
	}
	return bench.Run(ctx, b.o)
}

// private measures in a mount namespace of its own.
func (b *benchmarker) private(ctx context.Context, program string) error {
	status, err := bench.Private(ctx, program, os.Args[1:])
	if err == nil && status != 0 {
		return errSilent // it has spoken
	}
	return err
}

// print writes the report where it is asked for, and says what is broken.
func (b *benchmarker) print(report *bench.Report) error {
	var out bytes.Buffer
	var err error
	switch {
	case b.a.ui.json:
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	case b.markdown || len(report.Promises) == 0:
		err = report.Markdown(&out, b.command())
	default:
		for _, p := range report.Promises {
			fmt.Fprintln(&out, p)
		}
	}
	if err != nil {
		return err
	}
	var to io.Writer = b.a.ui.out
	if b.file != "" {
		f, err := os.Create(b.file)
		if err != nil {
			return err
		}
		defer f.Close()
		to = f
	}
	if _, err := out.WriteTo(to); err != nil {
		return err
	}
	for _, p := range report.Broken() {
		fmt.Fprintln(b.a.ui.err, p)
	}
	return nil
}

// command is the command line that makes the same numbers again.
func (b *benchmarker) command() string {
	s := "snapfs bench"
	if b.gate {
		s += " --gate"
	}
	if b.o.Full {
		s += " --full"
	}
	if b.o.Quick {
		s += " --quick"
	}
	if len(b.o.Only) > 0 {
		s += " --only " + strings.Join(b.o.Only, ",")
	}
	return s + " --markdown"
}
