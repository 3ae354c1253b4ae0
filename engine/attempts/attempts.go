// Package attempts collects what the programs in one sandbox tried and did not get: files that are hidden
// from them, files that the section [data] of the profile forbids to read or to write, and programs that the section
// [tools] forbids. It also lists the programs that they executed, and records the first read of each file for which the
// profile asks that.
//
// The package only reports. Mounts and Landlock hide the files and forbid the reads, the writes and the programs, whether
// or not a Log observes that. But a read that cannot be recorded fails.
package attempts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// The values of Attempt.Kind: what a program in a sandbox tried in vain to open, write or execute.
const (
	// Hidden is the kind of an attempt to open a file that the sandbox does not show, whether or not the host
	// has it.
	Hidden = "hidden"
	// Program is the kind of an attempt to execute a program that the profile of the sandbox forbids.
	Program = "program"
	// Write is the kind of an attempt to write, create, rename, remove or change a file that the profile of the
	// sandbox forbids to write.
	Write = "write"
	// Read is the kind of an attempt to read, list or execute a file that the profile of the sandbox forbids to read.
	Read = "read"
)

// An Attempt is one path that programs of a sandbox tried in vain to open, write or execute.
type Attempt struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// By is the name of the process that tried first, which the process itself chooses.
	By string `json:"by"`
	// Times is the number of system calls.
	Times int `json:"times"`
}

// Text returns the attempt as text for the user: what was tried, the path, and the process that tried first.
func (t Attempt) Text() string {
	text := t.Kind + ": " // of a kind that this program does not know
	switch t.Kind {
	case Hidden:
		text = "looked for a hidden file: "
	case Program:
		text = "may not be executed: "
	case Write:
		text = "may not be written: "
	case Read:
		text = "may not be read: "
	}
	text += pathlist.Printable(t.Path)
	if t.By != "" {
		text += " (by " + pathlist.Printable(t.By) + ")"
	}
	return text
}

// How many different failed attempts and executed programs a Log stores at most; further ones are not listed. The
// programs of a sandbox cause the entries, so without a bound they could fill the memory.
const (
	maxAttempts = 100 // refused programs, and as many refused writes
	maxPrograms = 10_000
)

// A Log collects the paths that programs of one sandbox tried in vain, and the programs that they executed,
// while the sandbox's container lives. [Attach] makes it. Its methods are safe for concurrent use. List and
// Programs of a nil Log return nil.
type Log struct {
	rec     *catalog.Record
	events  *events.Log
	secrets map[string]bool // what is hidden, and the usual places of secrets

	deny  []string // programs and directories, also after symbolic links
	allow []string // after symbolic links; nil: every program

	readOnly []string // files and directories that may not be written, also after symbolic links
	writable []string // the only ones that may, after symbolic links; nil: all
	readable []string // the only ones that may be read besides writable, after symbolic links; nil: all

	recorded *recorder // nil: no read is recorded

	looking   sync.Mutex
	exist     map[string]bool // which of these paths the host has, by path; only those that were asked for
	forbidden map[string]bool // the results of refused, by path

	mu       sync.Mutex
	list     []Attempt
	at       map[string]int  // the index in list, by kind and hidden path or program
	refusals map[string]int  // how many programs and writes were refused, each path once, by kind
	programs map[string]bool // that were executed
}

// Attach makes the container that spec describes report which files its programs open, read or write and which programs
// they execute, as far as the policy of the sandbox rec needs that. It returns the Log that collects the reports, or
// nil. The caller starts the container from spec afterwards. note is a message for the user if the kernel
// cannot observe this; the isolation is the same without it. Errors: if the policy has reads recorded,
// errs.ErrNotSupported for such a kernel, and those of [datafiles.Find].
func Attach(rec *catalog.Record, spec *isolate.Spec, log *events.Log) (l *Log, note []string, err error) {
	p := &rec.Policy
	o := observes(p, spec)
	switch {
	case !o.any():
		return nil, nil, nil
	case !isolate.Observes() && o.moves:
		return nil, nil, errUnrecorded
	case !isolate.Observes() && o.files:
		return nil, []string{"hidden files that the command tries to open are not reported: that needs seccomp (Linux 5.19)"}, nil
	case !isolate.Observes():
		return nil, nil, nil
	}
	allow := spec.Execute
	if len(spec.Guarded) > 0 { // at each of these paths is a small program of snapfs, which every process may execute
		allow = slices.Concat(allow, spec.Guarded)
	}
	l = &Log{
		rec: rec, events: log, at: map[string]int{}, programs: map[string]bool{}, refusals: map[string]int{},
		deny: spec.NoExec, allow: allow, readOnly: spec.ReadOnly, writable: spec.Writable, readable: spec.Readable,
	}
	if o.moves {
		if l.recorded, err = newRecorder(p.Data.Recorded); err != nil {
			return nil, nil, err
		}
	}
	if o.files {
		l.secrets = map[string]bool{}
		for _, path := range slices.Concat(spec.Hide, hostfs.PlacesOfSecrets()) {
			l.secrets[path] = true
		}
		for _, path := range p.Expose {
			delete(l.secrets, path)
		}
		for _, r := range spec.Redacted { // su and PAM read these, so that reading one is no attempt
			delete(l.secrets, r.Path)
		}
	}
	spec.Observe = &isolate.Observer{Files: o.files, Programs: o.programs, Writes: o.writes, Reads: o.reads, Moves: o.moves, Call: l.observe}
	return l, nil, nil
}

// kinds are the kinds of system calls that a Log observes, as in [isolate.Observer].
type kinds struct{ files, programs, writes, reads, moves bool }

func (k kinds) any() bool { return k != kinds{} }

// observes returns the kinds of system calls that are observed for the policy p in the container that spec describes.
// Moves are observed if reads are recorded.
func observes(p *catalog.Policy, spec *isolate.Spec) (k kinds) {
	k.files = p.Result != nil || p.Observe
	if d := p.Data; d != nil {
		k.writes = spec.Writable != nil || len(d.ReadOnly) > 0
		k.moves = len(d.Recorded) > 0
		k.reads = spec.Readable != nil || k.moves
	}
	tools := p.Tools != nil && (p.Tools.Allow != nil || p.Tools.Deny != nil)
	k.programs = k.files || k.reads || tools
	return k
}

// observe evaluates one system call of a sandbox's program, which opens, reads or writes a file or executes a program. It
// adds an executed program to the log, and an attempt if the file is hidden or may not be read or written, or the program
// is forbidden. It returns false if the call must fail, since its read is to be recorded and cannot be.
func (l *Log) observe(o isolate.Observed) bool {
	switch o.Act {
	case isolate.ActLookup:
		if hidden := l.hiddenAt(o.Path); hidden != "" {
			l.add(Hidden, hidden, o)
		}
	case isolate.ActExec:
		l.mu.Lock()
		if len(l.programs) < maxPrograms {
			l.programs[o.Path] = true
		}
		l.mu.Unlock()
		if l.refused(o.Path) {
			l.add(Program, o.Path, o)
		}
		return l.read(o)
	case isolate.ActRead:
		return l.read(o)
	case isolate.ActMove:
		return l.recorded.move(o.Path, o.To)
	case isolate.ActWrite:
		if l.readOnlyRule(o.Path) != "" || !l.mayWrite(o.Path) {
			l.add(Write, o.Path, o)
		}
	case isolate.ActSetAttr: // which only read-only paths forbid
		if l.readOnlyRule(o.Path) != "" {
			l.add(Write, o.Path, o)
		}
	}
	return true
}

// read evaluates a system call that reads, lists or executes a file. It adds an attempt if the file may not be read, and
// otherwise records the first read of a file for which the profile asks that. It returns false if that cannot be recorded.
func (l *Log) read(o isolate.Observed) bool {
	if !l.mayRead(o.Path) {
		l.add(Read, o.Path, o)
		return true
	}
	done := true
	for _, path := range l.recorded.of(o.Path) {
		done = l.recorded.read(path, func() error {
			d := events.Data{Name: Read, Reason: "read by " + programOf(o.PID)}
			d.AddPath(path)
			return l.events.TryAppend(events.Event{Type: events.FileRead, Subject: l.rec.Name, SandboxID: l.rec.ID, Data: d})
		}) && done
	}
	return done
}

// mayRead reports whether path, which is one after symbolic links, is in the profile's list of readable paths, or there is
// no such list. Writable paths are readable.
func (l *Log) mayRead(path string) bool {
	return l.readable == nil || l.ruleOf(path, isolate.AlwaysReadable[:]) != "" || l.ruleOf(path, l.readable) != "" || l.ruleOf(path, l.writable) != ""
}

// programOf returns the name of a process and its program, for an event.
func programOf(pid int) string {
	name, _ := vfs.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // "" for a process that was killed
	text := strings.TrimSpace(string(name))
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		text += " (" + program + ")"
	}
	return text
}

// readOnlyRule returns the read-only path of the profile that is path or a directory above it, "" if there is none.
// path is one after symbolic links.
func (l *Log) readOnlyRule(path string) string { return l.ruleOf(path, l.readOnly) }

// ruleOf returns the first of rules, files and directories, that is path or a directory above it; "" if none is. All
// are paths after symbolic links. A rule for a file that the host, whose files the sandbox copies, does not have is
// none: no mount and no right was made for it.
func (l *Log) ruleOf(path string, rules []string) string {
	for _, rule := range rules {
		if hostfs.Within(path, rule) && l.exists(rule) {
			return rule
		}
	}
	return ""
}

// exists reports whether the host has a file at path. It looks once for each path, when a rule is first needed: a
// package may have many programs, of which few are executed.
func (l *Log) exists(path string) bool {
	l.looking.Lock()
	defer l.looking.Unlock()
	is, known := l.exist[path]
	if !known {
		_, err := os.Stat(path)
		is = err == nil
		if l.exist == nil {
			l.exist = map[string]bool{}
		}
		l.exist[path] = is
	}
	return is
}

// mayWrite reports whether path, which is one after symbolic links, is in the profile's list of writable paths, or
// there is no such list.
func (l *Log) mayWrite(path string) bool {
	always := func(dir string) bool { return hostfs.Within(path, dir) }
	return l.writable == nil || slices.ContainsFunc(isolate.AlwaysWritable[:], always) || l.ruleOf(path, l.writable) != ""
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

// refused reports whether the profile of the sandbox forbids executing a program. program is its path after
// symbolic links. It caches the results for the first maxPrograms programs.
func (l *Log) refused(program string) bool {
	l.looking.Lock()
	is, known := l.forbidden[program]
	l.looking.Unlock()
	if known {
		return is
	}
	is = l.forbids(program)
	l.looking.Lock()
	defer l.looking.Unlock()
	if l.forbidden == nil {
		l.forbidden = map[string]bool{}
	}
	if len(l.forbidden) < maxPrograms {
		l.forbidden[program] = is
	}
	return is
}

// forbids compares a program with the rules of the profile, for refused.
func (l *Log) forbids(program string) bool {
	if l.ruleOf(program, l.deny) != "" {
		return true
	}
	linker := strings.HasPrefix(filepath.Base(program), "ld-") // always allowed, see isolate.Spec.Execute
	return l.allow != nil && !linker && l.ruleOf(program, l.allow) == ""
}

// add counts an attempt, and announces the first of its kind at what: a hidden path or a program. So one
// program that tries all names in a hidden directory is one attempt. Of refused programs, and of refused writes,
// which a sandbox can make in any number, only the first maxAttempts are listed; an event says so.
func (l *Log) add(kind, what string, o isolate.Observed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := kind + " " + what
	if i, ok := l.at[key]; ok {
		l.list[i].Times++
		return
	}
	if kind != Hidden {
		if l.refusals[kind]++; l.refusals[kind] > maxAttempts {
			if l.refusals[kind] == maxAttempts+1 {
				l.announce(kind, "", "further "+kind+"s are refused and not listed")
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

// announce adds an event about a refusal of this kind (Hidden, Program, Write or Read), with the reason why, to the state
// directory's event log. path is the refused path, or "" for an event about none.
func (l *Log) announce(kind, path, why string) {
	d := events.Data{Name: kind, Reason: why}
	if path != "" {
		d.AddPath(path)
	}
	l.events.Append(events.Event{Type: events.AccessRefused, Subject: l.rec.Name, SandboxID: l.rec.ID, Data: d})
}

// RefusedContent adds an event to the state directory's event log: the sandbox rec did not start, because a program has
// not the digest that the section [tools] of the profile requires. err is the error of the start, which names it.
func RefusedContent(rec *catalog.Record, log *events.Log, err error) {
	d := events.Data{Name: Program, Reason: "tools: " + err.Error()}
	var refused *errs.Error
	if errors.As(err, &refused) {
		d.Reason = "tools: " + refused.Err.Error()
		d.AddPath(refused.Path)
	}
	log.Append(events.Event{Type: events.AccessRefused, Subject: rec.Name, SandboxID: rec.ID, Data: d})
}

// why returns why the attempt a failed, for the event in the event log: the file is hidden, or which rule of
// the profile forbids the write or the program; and the process that tried.
func (l *Log) why(a Attempt) string {
	by := ""
	if a.By != "" {
		by = ", by " + a.By
	}
	switch {
	case a.Kind == Hidden:
		return "hidden from the sandbox" + by
	case a.Kind == Write && l.readOnlyRule(a.Path) != "":
		return "data: read-only " + l.readOnlyRule(a.Path) + by
	case a.Kind == Read:
		return "data: not in readable" + by
	case a.Kind == Write && l.rec.Policy.Data.Writable == nil:
		return "data: not in readable, and without writable nothing else may be written" + by
	case a.Kind == Write:
		return "data: not in writable" + by
	}
	rule := l.rec.Policy.Tools.Rule(a.Path, dpkg.Installs)
	if rule == "" {
		rule = "deny"
	}
	return "tools: " + rule + by
}

// List returns the paths that programs of the sandbox have tried in vain so far, in the order of their first
// attempts.
func (l *Log) List() []Attempt {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// Programs returns the paths of the programs that were executed in the sandbox, sorted. It leaves out those
// that the profile forbids.
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
