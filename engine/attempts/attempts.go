// Package attempts collects what the programs in one sandbox tried and did not get: files that are hidden from
// them, and programs that [tools] of the profile refuses. It also lists the programs that they executed.
//
// It only reports: mounts and Landlock hide and refuse, whatever is observed.
package attempts

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// Kinds of attempts.
const (
	// Hidden is a file that a sandbox does not show, whether the host has it or not.
	Hidden = "hidden"
	// Program is a program that may not be executed.
	Program = "program"
)

// An Attempt is one path that programs of a sandbox tried in vain.
type Attempt struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// By is the name of the process that tried first, which the process itself chooses.
	By string `json:"by"`
	// Times is the number of system calls.
	Times int `json:"times"`
}

// Bounds of a Log, which the programs fill.
const (
	maxAttempts = 100 // refused programs
	maxPrograms = 10_000
)

// A Log collects the attempts of one sandbox while its container lives. Its methods are safe for concurrent use,
// and those of a nil Log return nothing.
type Log struct {
	rec     *catalog.Record
	events  *events.Log
	secrets map[string]bool // what is hidden, and the usual places of secrets
	deny    []string        // programs and directories, after symbolic links
	allow   []string        // nil: every program

	mu       sync.Mutex
	list     []Attempt
	at       map[string]int  // the index in list, by kind and hidden path or program
	refusals int             // how many programs were refused, each once
	programs map[string]bool // that were executed
}

// Attach has the system calls of a container observed, where the policy of its sandbox needs that, and returns
// their log, or nil. spec is complete but for that. note is a notice for a person where the kernel cannot
// observe them, which takes nothing from the walls.
func Attach(rec *catalog.Record, spec *isolate.Spec, log *events.Log) (l *Log, note []string) {
	p := &rec.Policy
	tools := p.Tools != nil && (p.Tools.Allow != nil || p.Tools.Deny != nil)
	files := p.Result != nil || p.Observe
	switch {
	case !files && !tools:
		return nil, nil
	case !isolate.Observes() && files:
		return nil, []string{"hidden files that the command tries to open are not reported: that needs seccomp (Linux 5.19)"}
	case !isolate.Observes():
		return nil, nil
	}
	l = &Log{rec: rec, events: log, deny: resolved(spec.NoExec), allow: resolved(spec.Execute), at: map[string]int{}, programs: map[string]bool{}}
	if files {
		l.secrets = map[string]bool{}
		for _, path := range slices.Concat(spec.Hide, hostfs.PlacesOfSecrets()) {
			l.secrets[path] = true
		}
		for _, path := range p.Expose {
			delete(l.secrets, path)
		}
	}
	spec.Observe, spec.ObserveExec = l.observe, !files
	return l, nil
}

// resolved returns paths with their symbolic links followed on the host, where the sandbox's copy began; nil for nil.
func resolved(paths []string) []string {
	if paths == nil {
		return nil
	}
	list := []string{}
	for _, p := range paths {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			list = append(list, real)
		}
	}
	return list
}

// observe adds one system call to the log.
func (l *Log) observe(o isolate.Observed) {
	if !o.Exec {
		if hidden := l.hiddenAt(o.Path); hidden != "" {
			l.add(Hidden, hidden, o)
		}
		return
	}
	l.mu.Lock()
	if len(l.programs) < maxPrograms {
		l.programs[o.Path] = true
	}
	l.mu.Unlock()
	if l.refused(o.Path) {
		l.add(Program, o.Path, o)
	}
}

// hiddenAt returns the hidden path that is this one or a directory above it, "" if there is none.
func (l *Log) hiddenAt(path string) string {
	for ; len(path) > 1; path = path[:strings.LastIndexByte(path, '/')] {
		if l.secrets[path] {
			return path
		}
	}
	return ""
}

// refused reports whether a program, given by its path after symbolic links, may not be executed.
func (l *Log) refused(program string) bool {
	holds := func(rule string) bool { return hostfs.Within(program, rule) }
	if slices.ContainsFunc(l.deny, holds) {
		return true
	}
	linker := strings.HasPrefix(filepath.Base(program), "ld-") // always allowed, see isolate.Spec.Execute
	return l.allow != nil && !linker && !slices.ContainsFunc(l.allow, holds)
}

// add counts an attempt, and announces the first of its kind at what: a hidden path or a program. So one program that
// tries all names in a hidden directory is one attempt. Of refused programs, which a sandbox can make in any number,
// only the first maxAttempts are listed; an event says so.
func (l *Log) add(kind, what string, o isolate.Observed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := kind + " " + what
	if i, ok := l.at[key]; ok {
		l.list[i].Times++
		return
	}
	if kind == Program {
		if l.refusals++; l.refusals > maxAttempts {
			if l.refusals == maxAttempts+1 {
				l.announce(kind, "", "further programs are refused and not listed")
			}
			return
		}
	}
	name, _ := vfs.ReadFile(fmt.Sprintf("/proc/%d/comm", o.PID)) // "" for a process that was killed
	a := Attempt{Kind: kind, Path: o.Path, By: strings.TrimSpace(string(name)), Times: 1}
	l.at[key] = len(l.list)
	l.list = append(l.list, a)
	l.announce(kind, a.Path, l.why(a))
}

// announce adds an event about a refusal; path may be "".
func (l *Log) announce(kind, path, why string) {
	d := events.Data{Name: kind, Reason: why}
	if path != "" {
		d.AddPath(path)
	}
	l.events.Append(events.Event{Type: events.AccessRefused, Subject: l.rec.Name, SandboxID: l.rec.ID, Data: d})
}

// why returns the reason of an attempt's failure for its event.
func (l *Log) why(a Attempt) string {
	by := ""
	if a.By != "" {
		by = ", by " + a.By
	}
	if a.Kind == Hidden {
		return "hidden from the sandbox" + by
	}
	rule := l.rec.Policy.Tools.Rule(a.Path)
	if rule == "" {
		rule = "deny"
	}
	return "tools: " + rule + by
}

// List returns the attempts so far, in their order.
func (l *Log) List() []Attempt {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// Programs returns the paths of the programs that were executed, sorted.
func (l *Log) Programs() []string {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for p := range l.programs {
		if !l.refused(p) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}
