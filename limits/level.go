//go:build linux

package limits

import (
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Level says by what each limit is held, in the order of [Limits].
func (g *Group) Level() []Held {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.held)
}

// Rlimits are what every process of the box must be given before it starts.
// RLIMIT_NPROC counts the processes of a user in a user namespace, and pid 1 with
// them: so it must be set in the box's own.
func (g *Group) Rlimits() []Rlimit {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Rlimit
	all := rlimits(g.l, g.held)
	for _, part := range [...]Part{PartMemory, PartPIDs, PartCPUTime, PartFiles} {
		if r, ok := all[part]; ok {
			list = append(list, r)
		}
	}
	return list
}

// rlimits are those for the limits that they hold, or that they back. What the
// caller's own hard limit holds already is left out: nobody may raise it.
func rlimits(l Limits, held []Held) map[Part]Rlimit {
	all := map[Part]Rlimit{}
	add := func(part Part, resource int, n int64) {
		var own unix.Rlimit
		if unix.Getrlimit(resource, &own) == nil && uint64(n) <= own.Max {
			all[part] = Rlimit{resource, uint64(n), uint64(n)}
		}
	}
	for _, h := range held {
		switch {
		case h.Part == PartFiles && h.By == ByRlimit:
			add(h.Part, unix.RLIMIT_NOFILE, l.Files)
		case h.Part == PartPIDs && h.By == ByRlimit:
			add(h.Part, unix.RLIMIT_NPROC, l.PIDs)
		case h.Part == PartMemory && h.By == ByWatcher:
			// What one process may ask for; most ask for more than they use.
			add(h.Part, unix.RLIMIT_DATA, l.Memory+max(l.Memory, 1<<30))
		case h.Part == PartCPUTime && h.Note != noteCounted:
			add(h.Part, unix.RLIMIT_CPU, int64(math.Ceil(l.CPUTime.Seconds()))+1)
		}
	}
	return all
}

// Notes of a level.
const (
	noteCounted   = "counted by the kernel, ended by snapfs"
	noteSwap      = "what is swapped out is not counted by this kernel"
	noteWriteback = "writes that the kernel gathers and writes by itself are not held; those that wait for the disk are"
	noteHost      = "more than the host has: it limits nothing here"
	noteFiles     = "more than the host gives one process: it limits nothing here"
)

// judge decides by what each limit is held, or says which cannot be.
func (g *Group) judge(l Limits) ([]Held, error) {
	var list []Held
	for _, a := range l.asked() {
		h, err := g.judgeOne(a.part, l)
		switch {
		case err == nil:
		case g.o.BestEffort:
			h = Held{By: ByNothing, Note: err.Err.Error()}
		default:
			return nil, err
		}
		h.Part, h.Value = a.part, a.text
		list = append(list, h)
	}
	return list, nil
}

func (g *Group) judgeOne(part Part, l Limits) (Held, *Error) {
	switch part {
	case PartCPUs:
		return g.judgeCPUs(l)
	case PartMemory:
		return g.judgeMemory(l)
	case PartPIDs:
		return g.judgePIDs(l)
	case PartCPUTime:
		if g.find("cpuacct") != nil || g.unified() != nil {
			return Held{By: ByWatcher, Note: noteCounted}, nil
		}
		return Held{By: ByWatcher, Note: g.weaker("cpuacct")}, nil
	case PartFiles:
		h := Held{By: ByRlimit}
		var own unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &own) == nil && uint64(l.Files) > own.Max {
			h.Note, h.Moot = noteFiles, true
		}
		return h, nil
	default:
		return g.judgeRate(part)
	}
}

func (g *Group) judgeCPUs(l Limits) (Held, *Error) {
	h := Held{By: ByWatcher, Note: g.weaker("cpu")}
	if m := g.find("cpu"); m != nil {
		h = Held{By: m.by()}
	} else if g.o.Pause == nil || g.o.Resume == nil {
		return h, g.cannot(PartCPUs, "cpu")
	}
	if l.CPUs > float64(processors()) {
		h.Note, h.Moot = noteHost, true
	}
	return h, nil
}

func (g *Group) judgeMemory(l Limits) (Held, *Error) {
	h := Held{By: ByWatcher, Note: g.weaker("memory")}
	if m := g.find("memory"); m != nil {
		h = Held{By: m.by()}
		if m.version == 1 && !m.there("memory.memsw.limit_in_bytes") && swap() {
			h.Note = noteSwap
		}
	}
	if total := memoryOfHost(); total > 0 && l.Memory > total {
		h.Note, h.Moot = noteHost, true
	}
	return h, nil
}

func (g *Group) judgePIDs(l Limits) (Held, *Error) {
	h := Held{By: ByRlimit, Note: g.weaker("pids") + "; each user of the sandbox for itself"}
	if m := g.find("pids"); m != nil {
		h = Held{By: m.by()}
	} else if os.Geteuid() == 0 { // root's own processes are not held by RLIMIT_NPROC (kernel/fork.c)
		return Held{}, g.cannot(PartPIDs, "pids")
	}
	if most := pidsOfHost(); most > 0 && l.PIDs > most {
		h.Note, h.Moot = noteHost, true
	}
	return h, nil
}

func (g *Group) judgeRate(part Part) (Held, *Error) {
	m := g.find("io", "blkio")
	switch {
	case m == nil:
		return Held{}, g.cannot(part, "io", "blkio")
	case len(g.disks) == 0:
		return Held{}, &Error{Op: "limiting " + string(part), Kind: ErrNotSupported, Err: errors.New("no disk is known for it")}
	case m.version == 1 && !m.there("blkio.throttle.read_bps_device"):
		return Held{}, &Error{Op: "limiting " + string(part), Kind: ErrNotSupported, Err: errors.New("this kernel has no limit of rates (CONFIG_BLK_DEV_THROTTLING)")}
	case m.version == 1 && (part == PartWriteRate || part == PartWriteOps):
		return Held{By: m.by(), Note: noteWriteback}, nil
	}
	return Held{By: m.by()}, nil
}

// weaker says why a limit is held by less than a control group.
func (g *Group) weaker(controller string) string {
	if why := g.why[controller]; why != nil {
		return "no control group holds it: " + why.Error()
	}
	return "no control group holds it: there is no controller " + controller
}

// cannot says why a limit is held by nothing, and what would have to be so.
func (g *Group) cannot(part Part, controllers ...string) *Error {
	e := &Error{Op: "limiting " + string(part), Kind: ErrNotSupported, Err: errors.New("no control group can be made that holds it")}
	for _, c := range controllers {
		if why := g.why[c]; why != nil {
			e.Err = why
		}
	}
	if os.Geteuid() != 0 {
		e.Hints = append(e.Hints, "sudo, or a systemd of the user's own that is given the controller: sudo loginctl enable-linger $USER")
	}
	return e
}

func (m *member) there(file string) bool {
	return unix.Faccessat(m.fd, file, unix.F_OK, 0) == nil
}

// processors is how many are on: a process may give itself any of them, whatever
// this one was given (sched_setaffinity(2)).
func processors() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online") // like 0-3,6
	if n := countList(strings.TrimSpace(string(text))); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// countList counts what a list of the kernel's names, like "0-3,6"; 0 for what is
// none.
func countList(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, span := strings.Cut(part, "-")
		if !span {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}

// memoryOfHost is its memory and swap in bytes, 0 where that is not known.
func memoryOfHost() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram+info.Totalswap) * int64(info.Unit)
}

// pidsOfHost is how many processes and threads it can have, 0 where that is not known.
func pidsOfHost() int64 {
	var most int64
	for _, name := range [...]string{"pid_max", "threads-max"} {
		text, err := os.ReadFile("/proc/sys/kernel/" + name)
		n, err2 := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && err2 == nil && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}

func swap() bool {
	var info unix.Sysinfo_t
	return unix.Sysinfo(&info) == nil && info.Totalswap > 0
}

// tick is the unit of times in /proc/PID/stat: 100 in a second on all
// architectures that Linux has left (USER_HZ).
const tick = 10 * time.Millisecond
