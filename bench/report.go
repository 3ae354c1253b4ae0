//go:build linux

package bench

import (
	"fmt"
	"time"

	"github.com/snapfs/snapfs/bench/machine"
	"github.com/snapfs/snapfs/bench/timing"
)

// A Report holds all results of a run of snapfs-bench, with a description of the machine and the options.
type Report struct {
	Environment machine.Environment `json:"environment"`
	Options     string              `json:"options"`
	// Meanings maps the name of each timed operation to a sentence that says exactly what was
	// timed.
	Meanings map[string]string `json:"meanings"`
	Results  []Result          `json:"results,omitempty"`
	Promises []Promise         `json:"promises,omitempty"`
}

// A Result is one row of a report: how long one operation took in one setting (backend, user, filesystem).
type Result struct {
	// Kind is one of [Kinds].
	Kind string `json:"kind"`
	// What is the timed operation: a key of Meanings, or a command line.
	What string `json:"what"`
	// Setting is backend, user and filesystem, or the name of another program.
	Setting string `json:"setting"`
	// Files is the number of files in the tree.
	Files int `json:"files,omitempty"`
	// Dirty is set if a hundred files were changed right before, in the real tree or in the
	// sandbox, as Meanings says.
	Dirty bool `json:"dirty,omitempty"`
	// AtOnce is the number of simultaneous operations.
	AtOnce int `json:"at_once,omitempty"`
	timing.Summary
	// Ratio is the median cost of work relative to the bare tree.
	Ratio float64 `json:"ratio,omitempty"`
	// Error is the reason why there is no measurement.
	Error string `json:"error,omitempty"`
}

// A Promise is a published bound on a measured value, such as the time of a command, with the measurement.
type Promise struct {
	Name string `json:"name"`
	// Measured is the smallest of Tries measurements.
	Measured float64 `json:"measured"`
	Limit    float64 `json:"limit,omitempty"`
	// Held is the regression bound of a promise that is not yet reached, or 0.
	Held float64 `json:"held,omitempty"`
	Unit string  `json:"unit"`
	// Noise describes the tolerance in the bound, if there is one.
	Noise string `json:"noise,omitempty"`
	// Holds is set if the measured value is within the bound.
	Holds bool `json:"holds"`
	// Told is set for a value that is only reported, without a promise.
	Told  bool `json:"told,omitempty"`
	Tries int  `json:"tries"`
	// Detail lists the measurements behind the value.
	Detail string        `json:"detail,omitempty"`
	Error  string        `json:"error,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

// missed reports whether the promise does not hold but its value is within the regression bound Held, so that
// the gate does not fail.
func (p Promise) missed() bool { return !p.Holds && !p.Told && p.Error == "" && p.Measured <= p.Held }

// Broken returns the promises that make the gate fail: those that do not hold, except those within their
// regression bound Held.
func (r *Report) Broken() (broken []Promise) {
	for _, p := range r.Promises {
		if !p.Holds && !p.Told && !p.missed() {
			broken = append(broken, p)
		}
	}
	return broken
}

func resultOf(r Result, s timing.Sample) Result {
	r.Summary = timing.Summarise(s.Took)
	if s.Err != nil {
		r.Error = s.Err.Error()
	}
	return r
}

// summaryOf returns the options of a measurement as one line of text, for the heading of the report.
func summaryOf(o Options) string {
	s := fmt.Sprintf("sizes %v, at most %d rounds", o.Sizes, o.Rounds)
	if o.Quick {
		s += ", quick: a test of the benchmark, not numbers to believe"
	}
	if o.InMemory {
		s += ", on a filesystem in memory"
	}
	return s
}
