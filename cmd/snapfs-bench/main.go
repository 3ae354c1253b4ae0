//go:build linux

// Snapfs-bench measures every number that snapfs publishes, and judges the performance promises of snapfs. It
// is a program of its own, so that a start of snapfs does not load the benchmarks.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/bench"
	"github.com/snapfs/snapfs/bench/depth"
	"github.com/snapfs/snapfs/bench/httpload"
	"github.com/snapfs/snapfs/bench/proxied"
	"github.com/snapfs/snapfs/internal/run"
)

// errBroken makes snapfs-bench exit with status 1, after it has printed a performance promise that does not
// hold.
var errBroken = errors.New("a promise is broken")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := newCommand().ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errBroken) {
		fmt.Fprintln(os.Stderr, "snapfs-bench:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// A benchmarker is one run of the program snapfs-bench: its options, and the paths of the programs that it
// measures.
type benchmarker struct {
	o                    bench.Options
	gate, markdown, json bool
	file, role, order    string
}

func newCommand() *cobra.Command {
	var b benchmarker
	cmd := &cobra.Command{
		Use:   "snapfs-bench",
		Short: "measure this machine, and judge what snapfs promises",
		Long: `Measures how long everything takes here, what work inside a sandbox costs, and
the same done with other programs where they are installed. With --gate it
measures what snapfs promises, and fails where a promise is broken. It works
in a directory of its own beneath /var/tmp and leaves nothing behind. As root it
measures the backends of root and of an ordinary user.`,
		Example: `  sudo ./snapfs-bench --markdown -o numbers.md
  sudo ./snapfs-bench --gate
  go run ./cmd/snapfs-bench --snapfs ./snapfs --only inside`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&b.o.Program, "snapfs", "", "measure this `program` (default: the snapfs beside this one, or in the path)")
	f.BoolVar(&b.gate, "gate", false, "judge what snapfs promises, and fail where a promise is broken")
	f.BoolVar(&b.o.Full, "full", false, "measure a tree of a million files too")
	f.BoolVar(&b.o.Quick, "quick", false, "measure too little to be believed: a test of the benchmark")
	f.BoolVar(&b.o.InMemory, "in-memory", false, "measure on an ext4 in memory, so that no disk has a part in it (as root)")
	f.StringSliceVar(&b.o.Only, "only", nil, "measure only these `kinds`: "+strings.Join(bench.Kinds(), ", ")+" (growth, depth, evidence, proxy and rules with --gate)")
	f.BoolVar(&b.json, "json", false, "print results as JSON")
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
			return fmt.Errorf("--only %s: there are %s", kind, strings.Join(bench.Kinds(), ", "))
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
	case httpload.RoleWrite:
		return httpload.WriteEvents(ctx, b.order, os.Stdout)
	case proxied.Role:
		return proxied.Request(ctx, b.order, os.Stdout)
	case depth.Role:
		return depth.Measure(ctx, b.order, os.Stdout)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 && b.o.Lab == "" {
		return private(ctx, self)
	}
	if b.o.Lab != "" {
		ctx = bench.Leashed(ctx)
	}
	if err := b.findPrograms(self); err != nil {
		return err
	}
	b.o.Say = func(s string) { fmt.Fprintln(os.Stderr, s) }
	report, err := b.measure(ctx)
	if report == nil {
		return err
	}
	err = errors.Join(err, b.print(report))
	for _, p := range report.Broken() {
		fmt.Fprintln(os.Stderr, p)
		err = errors.Join(err, errBroken)
	}
	return err
}

// findPrograms sets the paths of snapfs-bench itself, given as self, and of snapfs, which it measures.
func (b *benchmarker) findPrograms(self string) error {
	b.o.Self = self
	if b.o.Program == "" {
		found, err := run.Beside("snapfs", nil)
		if err != nil {
			return err
		}
		b.o.Program = found[0]
	}
	var err error
	b.o.Program, err = filepath.Abs(b.o.Program)
	return err
}

func (b *benchmarker) measure(ctx context.Context) (*bench.Report, error) {
	if b.gate {
		return bench.Gate(ctx, b.o)
	}
	return bench.Run(ctx, b.o)
}

// private runs snapfs-bench again, from the path self, in a private mount namespace, so that its mounts do
// not appear on the machine. It returns errBroken if that process exits with another status than 0.
func private(ctx context.Context, self string) error {
	status, err := bench.Private(ctx, self, os.Args[1:])
	if err == nil && status != 0 {
		return errBroken // and it has said why
	}
	return err
}

// print writes the report of the measurements to the output file, or to standard output.
func (b *benchmarker) print(report *bench.Report) error {
	var out bytes.Buffer
	var err error
	switch {
	case b.json:
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
	var to io.Writer = os.Stdout
	if b.file != "" {
		f, err := os.Create(b.file)
		if err != nil {
			return err
		}
		defer f.Close()
		to = f
	}
	_, err = out.WriteTo(to)
	return err
}

// command returns the command line of snapfs-bench that repeats this measurement, for the report.
func (b *benchmarker) command() string {
	s := "snapfs-bench"
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
