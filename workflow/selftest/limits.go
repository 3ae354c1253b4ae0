package selftest

import (
	"runtime"
	"slices"
	"strconv"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/units"
)

// A limitTrial says how the self-test tests one resource limit of a sandbox: the probe (a program in the
// sandbox) that tries to exceed it, and the values of the limit to test.
type limitTrial struct {
	probe string
	// also is a second probe that exceeds it, if there is one.
	also string
	// small is the value to test if the policy has no such limit, or has one above most, whose
	// test would take too long or is more than this host has.
	small, most string
	// always is set for a limit that is tested even if the policy lacks it.
	always bool
	// dir is set if the probe gets the workspace as an argument.
	dir bool
}

// tryableLimits returns, by the name of a sandbox's limit, such as memory, how the self-test tries to exceed
// it. Limits on a sandbox's lifetime are not tested.
func tryableLimits() map[string]limitTrial {
	processors := units.FormatCPUs(0.9 * float64(runtime.NumCPU()))
	return map[string]limitTrial{
		"memory":       {probe: "memory", also: "memory-files", small: "64M", most: "512M", always: true},
		"pids":         {probe: "pids", small: "50", most: "500", always: true},
		"files":        {probe: "files", small: "64", most: "65536", always: true},
		"cpus":         {probe: "cpus", small: "0.1", most: processors, always: true}, // less than a busy machine has free
		"cpu-time":     {probe: "cpu-time", small: "1s", most: "3s", always: true},
		"time":         {probe: "time", small: "1s", most: "3s", always: true},
		"disk":         {probe: "disk", small: "8M", most: "256M", dir: true},
		"inodes":       {probe: "inodes", small: "100", most: "10000", dir: true},
		"io-read":      {probe: "read-rate", small: "1M/s", most: "8M/s", dir: true},
		"io-write":     {probe: "write-rate", small: "1M/s", most: "8M/s", dir: true},
		"io-read-ops":  {probe: "read-ops", small: "50", most: "200", dir: true},
		"io-write-ops": {probe: "write-ops", small: "50", most: "200", dir: true},
	}
}

// limitTrials returns the self-tests that try to exceed limits, each in a separate sandbox: of the limits
// that l sets and, unless p.own is set, of default values for the others.
func (p *prover) limitTrials(l catalog.Limits) (trials []trial) {
	how := tryableLimits()
	for _, f := range l.Fields() {
		h, known := how[f.Name]
		own := f.Value.String()
		if !known || own == "" && (p.own || !h.always) {
			continue
		}
		if h.also != "" {
			second := h
			second.probe, second.also = h.also, ""
			trials = p.fieldTrials(trials, f.Name, own, second)
		}
		trials = p.fieldTrials(trials, f.Name, own, h)
	}
	return trials
}

// fieldTrials appends to trials the self-test that tries to exceed the limit called name in a sandbox, as h
// describes it. own is the value that the policy sets, or "". A value that would take too long to test is
// replaced by a smaller one.
func (p *prover) fieldTrials(trials []trial, name, own string, h limitTrial) []trial {
	small := p.limitTrial(name, h, h.small)
	switch {
	case own == "":
		trials = append(trials, small)
	case exceeds(name, own, h.most):
		small.note = " (tried at " + h.small + ": " + own + " would take too long, or more than this host has)"
		trials = append(trials, small)
	default:
		t := p.limitTrial(name, h, own)
		if exceeds(name, own, h.small) {
			small.note = " (tried at " + h.small + ": at " + own + " this busy machine cannot tell)"
			t.small = &small
		}
		trials = append(trials, t)
	}
	return trials
}

// limitTrial returns the self-test that tries to exceed the limit called name, at the given value, in a
// sandbox, as h describes it.
func (p *prover) limitTrial(name string, h limitTrial, value string) trial {
	t := trial{probe: h.probe}
	t.limits.SetField(name, value) //nolint:errcheck // it was read before, or stands above
	t.args = []string{measure(name, t.limits)}
	if h.dir {
		t.args = append(t.args, p.req.Workspace)
	}
	return t
}

// exceeds reports whether value is larger than most. Both are values, as text, of the limit of a sandbox
// called name.
func exceeds(name, value, most string) bool {
	var a, b catalog.Limits
	_, err := a.SetField(name, value)
	_, err2 := b.SetField(name, most)
	if err != nil || err2 != nil {
		return false
	}
	for i, f := range a.Fields() {
		if f.Name == name {
			return f.Value.Tighten(b.Fields()[i].Value)
		}
	}
	return false
}

// measure returns the argument for the probe, the program that tries to exceed the limit called name in a
// sandbox. It says which value the limit has in l.
func measure(name string, l catalog.Limits) string {
	for _, n := range []int64{l.Memory, l.PIDs, l.Files, l.Disk, l.Inodes, l.ReadRate, l.WriteRate, l.ReadOps, l.WriteOps} {
		if n != 0 {
			return strconv.FormatInt(n, 10)
		}
	}
	if l.CPUs != 0 {
		return units.FormatCPUs(l.CPUs)
	}
	if name == "time" { // the probe gets a signal first
		return (l.Time + supervise.GracePeriod).String()
	}
	return l.CPUTime.String()
}

// The kinds of probes, which are attempts of the self-test to break out of a sandbox: against its isolation
// from the host, its network rules, or its resource limits.
const (
	KindIsolation = "isolation"
	KindNetwork   = "network"
	KindLimit     = "limit"
)

// KindOf returns which kind of boundary the probe (attempt of the self-test) with this name tries to cross:
// KindLimit, to exceed a limit; KindNetwork, to reach a destination of the network; or KindIsolation, to
// reach the host, its secrets or another sandbox.
func KindOf(probe string) string {
	for _, h := range tryableLimits() {
		if probe == h.probe || probe == h.also {
			return KindLimit
		}
	}
	if slices.Contains(networkProbes, probe) || slices.Contains(serverProbes, probe) || slices.Contains(requestProbes, probe) && probe != "secret" {
		return KindNetwork
	}
	return KindIsolation
}
