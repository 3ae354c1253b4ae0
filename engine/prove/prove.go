package prove

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/internal/exactjson"
)

// A Probe is one attempt to break one part of the isolation of a sandbox, made by a process inside it. [List]
// has all of them.
type Probe struct {
	// Name is the argument of [Run].
	Name string
	// Args are the names of the arguments that follow Name, in order. A last name that ends
	// with "..." stands for several arguments.
	Args []string
	// Kills is set if working isolation kills the process of the probe, without time to
	// report; see [Read].
	Kills bool
	// Quick is set if the probe takes at most some milliseconds and may share a process with
	// others.
	Quick bool

	plan func(args []string) (attempt, error)
}

// An attempt is one run of a probe, which tries something forbidden inside a sandbox, ready to start: tried
// describes the attempt for the report, and the function try makes it.
type attempt struct {
	tried string
	try   func() outcome
}

type outcome struct {
	happened string
	held     bool
	busy     bool
}

// A Report is the result of a probe. The probe's process prints it as one line of JSON, for the program on
// the host to read.
type Report struct {
	Probe string `json:"probe"`
	// Tried describes the attempt, and Happened its result.
	Tried    string `json:"tried"`
	Happened string `json:"happened"`
	// Held is set if the isolation held.
	Held bool `json:"held"`
	// Busy is set if the attempt did not succeed, but perhaps only because other programs keep
	// the machine busy. A caller who knows better may set Held.
	Busy bool `json:"busy,omitempty"`
}

const couldNot = "could not be tried: "

// Untried returns the report of a probe whose attempt could not be made because of err. It counts as failed
// isolation.
func Untried(probe string, args []string, err error) Report {
	return Report{Probe: probe, Tried: strings.Join(append([]string{probe}, args...), " "), Happened: untried("%v", err).happened}
}

// WasTried reports whether the probe could try the act that its sandbox forbids, rather than being prevented
// by an error such as a missing program.
func (r Report) WasTried() bool { return !strings.HasPrefix(r.Happened, couldNot) }

// Exit statuses, returned by [Run], of the process of a probe, which tries inside a sandbox to cross its
// isolation.
const (
	ExitHeld    = 0
	ExitCrossed = 1 // or the attempt could not be made
	ExitUsage   = 2 // no such probe
)

// Several is the probe name with which [Run] makes several attempts in one process, to save starts. Its
// argument is a JSON list, each element a name with arguments.
const Several = "several"

// Run makes the attempt of the probe called name in this process, which should do nothing else and end
// afterwards. It writes two reports to out: one without Happened before the attempt, in case the process is
// killed, and the final one. It returns the exit status for the process. Cost: up to a few seconds, or the
// time limit.
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
		if write(out, r) != nil {
			return ExitCrossed // the report would be lost
		}
		o := a.try()
		r.Happened, r.Held, r.Busy = o.happened, o.held, o.busy
	}
	if write(out, r) != nil || !r.Held {
		return ExitCrossed
	}
	return ExitHeld
}

func runSeveral(args []string, out io.Writer) int {
	var list [][]string
	if len(args) != 1 || exactjson.Decode([]byte(args[0]), &list) != nil {
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

// Read returns the report of the probe called name from the output of its process. killed is set if a signal
// ended the process, alone or with its sandbox, which for some probes means that the isolation held.
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
	r.Held, r.Busy, r.Tried = false, false, cmp.Or(r.Tried, name) // whatever the output says
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
		return attempt{}, fmt.Errorf("it needs the arguments %q", p.Args)
	}
	return p.plan(args)
}

func write(out io.Writer, r Report) error {
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
	return outcome{happened: couldNot + fmt.Sprintf(format, args...)}
}
