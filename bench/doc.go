//go:build linux

// Package bench makes every published number, and says which of the stated
// ratios hold.
//
// [Run] measures: how long each verb takes, for trees of several sizes, clean
// and dirty, one at a time and a hundred at once, for each backend; what work
// inside a sandbox costs against the same work on the bare tree; the same work
// done with what a person would use instead; and what work costs on a layer
// above a tree, ours, the kernel's and that of fuse-overlayfs, side by side.
// [Gate] measures only the values that have a promise, and judges them.
//
// Values to compare are measured in turn, A B A B, on the same machine in the
// same minute, by the monotonic clock, after a warm-up that is thrown away, on
// trees that are the same every time. A program is timed from before its fork
// until it was waited for. What cannot work on a machine has its error for a
// result. All files are in one directory of /var/tmp, and gone afterwards,
// also after an interrupt; mounts are in a mount namespace of their own, and
// cannot outlive the measuring.
package bench

import (
	"context"
	"errors"
	"os"
)

// Options say what to measure.
type Options struct {
	// Program is the path of snapfs, and Self that of snapfs-bench.
	Program, Self string
	// Sizes are the numbers of files of the trees.
	Sizes []int
	// Rounds is how often each thing is measured, at most.
	Rounds int
	// Only, where not empty, are the kinds to measure; see [Kinds].
	Only []string
	// Full adds trees of a million files.
	Full bool
	// Quick measures too little to be believed: a test of the benchmark.
	Quick bool
	// InMemory puts everything on an ext4 in memory, so that no disk has a part in what is
	// measured. It takes root, and up to three quarters of the memory.
	InMemory bool
	// Say gets a sentence about each step. It may be nil.
	Say func(string) `json:"-"`
	// Lab is the directory for everything; "" makes one in /var/tmp.
	Lab string
}

const kindLayers = "layers"

// Kinds are what Options.Only picks from.
func Kinds() []string { return []string{"latency", "crowd", "inside", "peers", kindLayers} }

func (o Options) wants(kind string) bool {
	if len(o.Only) == 0 {
		return true
	}
	for _, k := range o.Only {
		if k == kind {
			return true
		}
	}
	return false
}

// defaults completes the options.
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

// Run measures everything that o asks for. What was measured before an error,
// or an interrupt, is in the report.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	o = o.defaults()
	l, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer l.back.UndoInto(&err)
	report = &Report{Environment: environment(l), Options: summaryOf(o), Meanings: meanings()}
	for _, s := range l.settings() {
		results, err := l.measureSetting(ctx, s)
		report.Results = append(report.Results, results...)
		if err != nil {
			return report, err
		}
	}
	if o.wants("peers") {
		results, err := l.peers(ctx)
		report.Results = append(report.Results, results...)
		if err != nil {
			return report, err
		}
	}
	if o.wants(kindLayers) {
		results, err := l.layers(ctx)
		report.Results = append(report.Results, results...)
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

// Gate measures what promises were made about. An error is about the
// measuring; broken promises are in the report.
func Gate(ctx context.Context, o Options) (report *Report, err error) {
	o = o.defaults()
	if os.Geteuid() != 0 {
		return nil, errors.New("the promises are about root's sandboxes too: run it with sudo")
	}
	l, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer l.back.UndoInto(&err)
	report = &Report{Environment: environment(l), Options: summaryOf(o), Meanings: meanings()}
	report.Promises, err = l.gate(ctx)
	return report, err
}
