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

	"github.com/snapfs/snapfs/errs"
)

// Level returns how each limit of the container is enforced, in the order of [Limits].
func (g *Group) Level() []Enforcement {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.enforced)
}

// Rlimits returns the limits for setrlimit(2) that every process of the container must have before it starts.
// RLIMIT_NPROC counts the processes of a user in a user namespace, including pid 1, so it must be set in the
// container's own namespace.
func (g *Group) Rlimits() []Rlimit {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Rlimit
	all := rlimits(g.l, g.enforced)
	for _, part := range [...]Part{PartMemory, PartPIDs, PartCPUTime, PartFiles} {
		if r, ok := all[part]; ok {
			list = append(list, r)
		}
	}
	return list
}

// rlimits returns, by limit, the values for setrlimit(2) with which each process enforces or supports the
// limits l, whose enforcement is held. It omits those that the caller's own hard limit enforces already,
// because no process can increase it.
func rlimits(l Limits, held []Enforcement) map[Part]Rlimit {
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
			// A limit of what one process may reserve; most reserve more than they use.
			add(h.Part, unix.RLIMIT_DATA, l.Memory+max(l.Memory, 1<<30))
		case h.Part == PartCPUTime && h.Note != noteCounted:
			add(h.Part, unix.RLIMIT_CPU, int64(math.Ceil(l.CPUTime.Seconds()))+1)
		}
	}
	return all
}

// Texts for Enforcement.Note, which explain to the user how a limit is enforced.
const (
	noteCounted   = "counted by the kernel, enforced by snapfs"
	noteSwap      = "this kernel does not count swapped memory"
	noteWriteback = "limits only synchronous writes, not the kernel's writeback"
	noteHost      = "more than the host has: no effect here"
	noteFiles     = "more than the host allows one process: no effect here"
)

// plan decides how each limit of l is enforced, and returns the list in the order of [Limits]. It returns an
// error for the first limit that this host cannot enforce, unless [Options.BestEffort] omits such limits.
func (g *Group) plan(l Limits) ([]Enforcement, error) {
	var list []Enforcement
	for _, a := range l.entries() {
		h, err := g.planOne(a.part, l)
		switch {
		case err == nil:
		case g.o.BestEffort:
			h = Enforcement{By: ByNothing, Note: err.Err.Error()}
		default:
			return nil, err
		}
		h.Part, h.Value = a.part, a.text
		list = append(list, h)
	}
	return list, nil
}

func (g *Group) planOne(part Part, l Limits) (Enforcement, *errs.Error) {
	switch part {
	case PartCPUs:
		return g.planCPUs(l)
	case PartMemory:
		return g.planMemory(l)
	case PartPIDs:
		return g.planPIDs(l)
	case PartCPUTime:
		if g.find("cpuacct") != nil || g.unified() != nil {
			return Enforcement{By: ByWatcher, Note: noteCounted}, nil
		}
		return Enforcement{By: ByWatcher, Note: g.whyWeaker("cpuacct")}, nil
	case PartFiles:
		h := Enforcement{By: ByRlimit}
		var own unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &own) == nil && uint64(l.Files) > own.Max {
			h.Note, h.Moot = noteFiles, true
		}
		return h, nil
	default:
		return g.planRate(part)
	}
}

func (g *Group) planCPUs(l Limits) (Enforcement, *errs.Error) {
	h := Enforcement{By: ByWatcher, Note: g.whyWeaker("cpu")}
	if m := g.find("cpu"); m != nil {
		h = Enforcement{By: m.by()}
	} else if g.o.Pause == nil || g.o.Resume == nil {
		return h, g.unsupported(PartCPUs, "cpu")
	}
	if l.CPUs > float64(processors()) {
		h.Note, h.Moot = noteHost, true
	}
	return h, nil
}

func (g *Group) planMemory(l Limits) (Enforcement, *errs.Error) {
	h := Enforcement{By: ByWatcher, Note: g.whyWeaker("memory")}
	if m := g.find("memory"); m != nil {
		h = Enforcement{By: m.by()}
		if m.version == 1 && !m.there("memory.memsw.limit_in_bytes") && swap() {
			h.Note = noteSwap
		}
	}
	if total := memoryOfHost(); total > 0 && l.Memory > total {
		h.Note, h.Moot = noteHost, true
	}
	return h, nil
}

func (g *Group) planPIDs(l Limits) (Enforcement, *errs.Error) {
	h := Enforcement{By: ByRlimit, Note: g.whyWeaker("pids") + "; each user of the sandbox for itself"}
	if m := g.find("pids"); m != nil {
		h = Enforcement{By: m.by()}
	} else if os.Geteuid() == 0 { // RLIMIT_NPROC does not apply to root's own processes (kernel/fork.c)
		return Enforcement{}, g.unsupported(PartPIDs, "pids")
	}
	if most := pidsOfHost(); most > 0 && l.PIDs > most {
		h.Note, h.Moot = noteHost, true
	}
	return h, nil
}

func (g *Group) planRate(part Part) (Enforcement, *errs.Error) {
	m := g.find("io", "blkio")
	switch {
	case m == nil:
		return Enforcement{}, g.unsupported(part, "io", "blkio")
	case len(g.disks) == 0:
		return Enforcement{}, &errs.Error{Op: "limiting " + string(part), Kind: errs.ErrNotSupported, Err: errors.New("no disk is known")}
	case m.version == 1 && !m.there("blkio.throttle.read_bps_device"):
		return Enforcement{}, &errs.Error{Op: "limiting " + string(part), Kind: errs.ErrNotSupported, Err: errors.New("this kernel cannot limit rates (CONFIG_BLK_DEV_THROTTLING)")}
	case m.version == 1 && (part == PartWriteRate || part == PartWriteOps):
		return Enforcement{By: m.by(), Note: noteWriteback}, nil
	}
	return Enforcement{By: m.by()}, nil
}

// whyWeaker returns a text for the user that says why a limit is not enforced by a control group: why this
// host has no usable cgroup controller of that name.
func (g *Group) whyWeaker(controller string) string {
	if why := g.why[controller]; why != nil {
		return "no control group:  " + why.Error()
	}
	return "no control group: no controller " + controller
}

// unsupported returns the error for the limit part, which cannot be enforced because one of the cgroup
// controllers is missing, with hints.
func (g *Group) unsupported(part Part, controllers ...string) *errs.Error {
	e := &errs.Error{Op: "limiting " + string(part), Kind: errs.ErrNotSupported, Err: errors.New("no control group can be created for it")}
	for _, c := range controllers {
		if why := g.why[c]; why != nil {
			e.Err = why
		}
	}
	if os.Geteuid() != 0 {
		e.Hints = append(e.Hints, "sudo, or a user's systemd with the controller: sudo loginctl enable-linger $USER")
	}
	return e
}

func (m *member) there(file string) bool {
	return unix.Faccessat(m.fd, file, unix.F_OK, 0) == nil
}

// processors returns the number of online processors of the host, the most that a processor limit can allow.
// It counts those too that this process may not use (sched_setaffinity(2)), since the container's processes
// can run on them.
func processors() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online") // like 0-3,6
	if n := countList(strings.TrimSpace(string(text))); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// countList returns how many numbers a list of the kernel like "0-3,6" stands for, or 0 for an invalid list.
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

// memoryOfHost returns the host's memory and swap together in bytes, or 0 if unknown. A larger memory limit
// has no effect.
func memoryOfHost() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram+info.Totalswap) * int64(info.Unit)
}

// pidsOfHost returns how many processes and threads the host allows at most, or 0 if unknown. A higher limit
// of a container's processes has no effect.
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

// tick is the unit of times in /proc/PID/stat: 10 ms on all architectures of Linux (USER_HZ).
const tick = 10 * time.Millisecond
