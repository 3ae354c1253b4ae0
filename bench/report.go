//go:build linux

package bench

import (
	"time"

	"github.com/snapfs/snapfs/bench/timing"
)

// A Report is everything that was measured, with what it was measured on.
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
	// AtOnce is how many were asked for at the same time.
	AtOnce int `json:"at_once,omitempty"`
	timing.Summary
	// Ratio is, for work, its median cost against the bare tree.
	Ratio float64 `json:"ratio,omitempty"`
	// Error is the result where it does not work.
	Error string `json:"error,omitempty"`
}

// A Promise is a stated ratio, and whether it holds.
type Promise struct {
	Name string `json:"name"`
	// Measured is the smallest of Tries measurements.
	Measured float64 `json:"measured"`
	Limit    float64 `json:"limit,omitempty"`
	// Held is what a promise that is still open is held to, or 0.
	Held float64 `json:"held,omitempty"`
	Unit string  `json:"unit"`
	// Noise says what was allowed for it, where something was.
	Noise string `json:"noise,omitempty"`
	// Holds, or is only told: no promise was made about it.
	Holds bool `json:"holds"`
	Told  bool `json:"told,omitempty"`
	Tries int  `json:"tries"`
	// Detail is what was measured to get there.
	Detail string        `json:"detail,omitempty"`
	Error  string        `json:"error,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

// missed: a promise that is still open, and no worse than it may be.
func (p Promise) missed() bool { return !p.Holds && !p.Told && p.Error == "" && p.Measured <= p.Held }

// Broken are the promises that do not hold, but for the open ones that are no
// worse than they were.
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
