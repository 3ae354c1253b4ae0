//go:build linux

// Package bench measures every published number, and reports which of the published performance promises
// hold.
//
// [Run] measures the time of each operation (new, run, diff, promote and so on) for each backend, for trees
// of several sizes, clean and dirty, one at a time and a hundred at once. It also measures work inside a
// sandbox against the same work on the bare tree, against other programs, and on the layers of snapfs,
// overlayfs and fuse-overlayfs. [Gate] measures only values that have a promise, and judges them.
//
// Values that are compared are measured in turn, A B A B, with the monotonic clock, on equal trees, after a
// warm-up that is not counted. A process is timed from before its fork until its parent has waited for it. If
// a backend does not work on a machine, its result holds the error. All files lie in one directory of
// /var/tmp, and all mounts in a private mount namespace; both are gone afterwards, also after an interrupt.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/bench/machine"
)

// Options select the measurements of [Run], which measures everything published, and of [Gate], which judges
// the performance promises.
type Options struct {
	// Program is the path of snapfs, and Self that of snapfs-bench.
	Program, Self string
	// Sizes are the numbers of files of the trees.
	Sizes []int
	// Rounds is how often each operation is measured, at most.
	Rounds int
	// Only lists the kinds of measurement to make (see [Kinds]); empty means all.
	Only []string
	// Full adds trees of a million files.
	Full bool
	// Quick measures too few rounds for useful figures; it is for testing the benchmark
	// itself.
	Quick bool
	// InMemory puts all files on an ext4 filesystem in memory, so that the disk has no
	// influence on the figures. It needs root and up to three quarters of the memory.
	InMemory bool
	// Say is called with a sentence about each step, for progress output. It may be nil.
	Say func(string) `json:"-"`
	// Lab is the directory for all files of the benchmark; "" makes one in /var/tmp.
	Lab string
}

const kindLayers = "layers"

// kindAPI is the name, in Options.Only, of the measurement of requests to snapfs serve.
const kindAPI = "api"

// kindHooks is the name, in Options.Only, of the measurement of snapfs hook, which a coding agent runs.
const kindHooks = "hooks"

// kindGrowth is the name, in Options.Only, of the checks of [Gate] that commands take as long in a larger
// tree, and among many sandboxes. [Run] has no such measurement.
const kindGrowth = "growth"

// kindDepth is the name, in Options.Only, of the checks of [Gate] on a sandbox with many snapshots and on a long
// chain of forks. They take long, so that Gate measures them only if Only names them.
const kindDepth = "depth"

// kindRecord is the name, in Options.Only, of the checks of [Gate] on the cost of evidence.
const kindRecord = "evidence"

// kindProxy is the name, in Options.Only, of the checks of [Gate] on requests through a sandbox's network proxy.
const kindProxy = "proxy"

// kindRules is the name, in Options.Only, of the checks of [Gate] on what the rules of [tools] and [data] cost.
const kindRules = "rules"

// judgedKinds returns the names of the kinds that only [Gate] measures.
func judgedKinds() []string { return []string{kindGrowth, kindDepth, kindRecord, kindProxy, kindRules} }

// Kinds returns the names of the kinds of measurement, such as "latency", which Options.Only selects.
func Kinds() []string {
	return append([]string{"latency", "crowd", "inside", "peers", kindLayers, kindAPI, kindHooks}, judgedKinds()...)
}

func (o Options) wants(kind string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, kind)
}

// checkOnly returns an error if o.Only names a kind that is not measured: by [Gate] if gate is set, else by [Run].
func (o Options) checkOnly(gate bool) error {
	for _, kind := range o.Only {
		switch judged := slices.Contains(judgedKinds(), kind); {
		case judged && !gate:
			return fmt.Errorf("--only %s selects promises, which only --gate measures: add --gate", kind)
		case gate && !judged:
			return fmt.Errorf("--only %s selects no promise: leave out --gate, or choose one of %s", kind, strings.Join(judgedKinds(), ", "))
		}
	}
	return nil
}

// defaults returns the options of a measurement with the usual value for each field that is not set.
func (o Options) defaults() Options {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{1_000, 10_000, 100_000}
		if o.Full {
			o.Sizes = append(o.Sizes, 1_000_000)
		}
		if o.Quick {
			o.Sizes = []int{1_000}
		}
	}
	if o.Rounds == 0 {
		o.Rounds = 40
		if o.Quick {
			o.Rounds = 3
		}
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	return o
}

// Run makes the measurements that o selects. After an error or an interrupt the report holds
// the results up to then.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.checkOnly(false); err != nil {
		return nil, err
	}
	o = o.defaults()
	l, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer l.back.UndoInto(&err)
	report = &Report{Environment: machine.Describe(l.dir, l.btrfs, l.noBtrfs), Options: summaryOf(o), Meanings: meanings()}
	for _, s := range l.settings() {
		results, err := l.measureSetting(ctx, s)
		report.Results = append(report.Results, results...)
		if err != nil {
			return report, err
		}
	}
	for _, part := range []struct {
		kind    string
		measure func(context.Context) ([]Result, error)
	}{{"peers", l.peers}, {kindLayers, l.layers}, {kindAPI, l.api}, {kindHooks, l.hooks}} {
		if !o.wants(part.kind) {
			continue
		}
		results, err := part.measure(ctx)
		report.Results = append(report.Results, results...)
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

// Gate measures every value about which a performance promise was made, and judges the promises. An error
// means that measuring failed; a promise that does not hold is in the report.
func Gate(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.checkOnly(true); err != nil {
		return nil, err
	}
	o = o.defaults()
	if os.Geteuid() != 0 {
		return nil, errors.New("the promises are about root's sandboxes too: run it with sudo")
	}
	l, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer l.back.UndoInto(&err)
	report = &Report{Environment: machine.Describe(l.dir, l.btrfs, l.noBtrfs), Options: summaryOf(o), Meanings: meanings()}
	report.Promises, err = l.gate(ctx)
	return report, err
}
