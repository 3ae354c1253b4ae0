// Package prove tries to cross the walls of a sandbox from the inside.
//
// Whether a wall is there cannot be read off a list of settings; it is there
// when somebody runs into it. A [Probe] is one attempt, made by a process of its
// own in the sandbox:
//
//	host                              sandbox
//	start the program ──────────────► Run(name, arguments, stdout)
//	Read(name, what it wrote, …) ◄─── a line before the attempt, one after it
//
// What cannot be tried is not proven, and counts as a wall that does not hold.
// A probe does no harm where its wall is missing: it goes a bounded way past a
// limit and takes back what it made, and asks the kernel for what it may refuse,
// never for what would do something.
package prove

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A Probe is one attempt to cross one wall.
type Probe struct {
	// Name is what [Run] is told.
	Name string
	// Args name what it has to be told besides, in order. The last one may stand
	// for several when it ends with "...".
	Args []string
	// Kills: who runs into this wall is killed, with no time to report; see [Read].
	Kills bool
	// Quick: it takes some milliseconds at most, and may follow others in one process.
	Quick bool

	plan func(args []string) (attempt, error)
}

// attempt is a probe that knows what to try.
type attempt struct {
	tried string
	try   func() outcome
}

type outcome struct {
	happened string
	held     bool
	busy     bool
}

// A Report says what a probe came to. It is one line of JSON.
type Report struct {
	Probe string `json:"probe"`
	// Tried is what was tried, in words, and Happened what came of it.
	Tried    string `json:"tried"`
	Happened string `json:"happened"`
	// Held: the wall was there.
	Held bool `json:"held"`
	// Busy: the wall was not crossed, but others keep the machine so busy that it
	// may not have been the wall that held. Whoever knows that it was may say so.
	Busy bool `json:"busy,omitempty"`
}

// The exit statuses of [Run].
const (
	ExitHeld    = 0
	ExitCrossed = 1 // or it could not be tried
	ExitUsage   = 2 // no such probe
)

// Several is what [Run] is told in place of a name, to make the attempts of a list in
// one process, one after the other: JSON, each its name and arguments.
const Several = "several"

// Run makes an attempt from within this process, which should do nothing else
// and end afterwards, and writes two reports to out: one without Happened before
// it tries, for the case that it is killed, and the one that counts. It answers
// with the process's exit status. Cost: up to a few seconds, or the time limit.
func Run(name string, args []string, out io.Writer) int {
	if name == Several {
		return runSeveral(args, out)
	}
	p, ok := find(name)
	if !ok {
		return ExitUsage
	}
	r := Report{Probe: name, Tried: name + " " + strings.Join(args, " ")}
	if a, err := p.attempt(args); err != nil {
		r.Happened = untried("%v", err).happened
	} else {
		r.Tried = a.tried
		if tell(out, r) != nil {
			return ExitCrossed // nobody would hear of it
		}
		o := a.try()
		r.Happened, r.Held, r.Busy = o.happened, o.held, o.busy
	}
	if tell(out, r) != nil || !r.Held {
		return ExitCrossed
	}
	return ExitHeld
}

func runSeveral(args []string, out io.Writer) int {
	var list [][]string
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &list) != nil {
		return ExitUsage
	}
	status := ExitHeld
	for _, one := range list {
		if len(one) == 0 {
			return ExitUsage
		}
		status = max(status, Run(one[0], one[1:], out))
	}
	return status
}

// Read makes the report of a probe out of what its process wrote. killed: the
// process was ended by a signal, alone or with its sandbox.
func Read(name string, output []byte, killed bool) Report {
	r := Report{Probe: name, Tried: name}
	for line := range strings.Lines(string(output)) {
		var next Report
		if json.Unmarshal([]byte(line), &next) == nil && next.Probe == name {
			r = next
		}
	}
	if r.Happened != "" {
		return r
	}
	r.Held, r.Busy, r.Tried = false, false, cmp.Or(r.Tried, name) // whatever was written
	p, _ := find(name)
	switch {
	case killed && p.Kills && r.Tried != name:
		r.Happened, r.Held = "it was killed", true
	case killed:
		r.Happened = untried("the process was killed").happened
	default:
		r.Happened = untried("the process ended without a report").happened
	}
	return r
}

func find(name string) (Probe, bool) {
	for _, p := range List() {
		if p.Name == name {
			return p, true
		}
	}
	return Probe{}, false
}

func (p Probe) attempt(args []string) (attempt, error) {
	many := len(p.Args) > 0 && strings.HasSuffix(p.Args[len(p.Args)-1], "...")
	if len(args) < len(p.Args) || len(args) > len(p.Args) && !many {
		return attempt{}, fmt.Errorf("it wants to be told %q", p.Args)
	}
	return p.plan(args)
}

func tell(out io.Writer, r Report) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	return err
}

func held(format string, args ...any) outcome {
	return outcome{happened: fmt.Sprintf(format, args...), held: true}
}

func crossed(format string, args ...any) outcome {
	return outcome{happened: fmt.Sprintf(format, args...)}
}

func untried(format string, args ...any) outcome {
	return outcome{happened: "could not be tried: " + fmt.Sprintf(format, args...)}
}
