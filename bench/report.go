//go:build linux

package bench

import (
	"time"

	"github.com/snapfs/snapfs/bench/timing"
)

// Report holds all measurements, with the machine and the options.
type Report struct {
	Environment Environment `json:"environment"`
	Options     string      `json:"options"`
	// Meanings say, for each thing that is timed, what exactly.
	Meanings map[string]string `json:"meanings"`
	Results  []Result          `json:"results,omitempty"`
	Promises []Promise         `json:"promises,omitempty"`
}

// A Result is one row.
type Result struct {
	// Kind is one of [Kinds].
	Kind string `json:"kind"`
	// What was timed: a key of Meanings, or a command.
	What string `json:"what"`
	// Setting is the backend, the user and the filesystem, or who else did it.
	Setting string `json:"setting"`
	// Files is the size of the tree.
	Files int `json:"files,omitempty"`
	// Dirty: a hundred files were changed right before, in the real tree or in
	// the sandbox, as Meanings says.
	Dirty bool `json:"dirty,omitempty"`
	// AtOnce is the number of simultaneous operations.
	AtOnce int `json:"at_once,omitempty"`
	timing.Summary
	// Ratio is the median cost of work relative to the bare tree.
	Ratio float64 `json:"ratio,omitempty"`
	// Error is the reason why there is no measurement.
	Error string `json:"error,omitempty"`
}

// A Promise is a stated ratio, and whether it holds.
type Promise struct {
	Name string `json:"name"`
	// Measured is the smallest of Tries measurements.
	Measured float64 `json:"measured"`
	Limit    float64 `json:"limit,omitempty"`
	// Held is the bound of a promise that is still open, or 0.
	Held float64 `json:"held,omitempty"`
	Unit string  `json:"unit"`
	// Noise describes the tolerance, if there is one.
	Noise string `json:"noise,omitempty"`
	// Holds: the promise holds.
	Holds bool `json:"holds"`
	// Told: there is no promise about the value.
	Told  bool `json:"told,omitempty"`
	Tries int  `json:"tries"`
	// Detail lists the measurements behind the value.
	Detail string        `json:"detail,omitempty"`
	Error  string        `json:"error,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

// missed reports whether the promise is open and no worse than its bound.
func (p Promise) missed() bool { return !p.Holds && !p.Told && p.Error == "" && p.Measured <= p.Held }

// Broken returns the promises that do not hold, except open ones within their bound.
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
