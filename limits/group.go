//go:build linux

package limits

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"golang.org/x/sys/unix"
)

// A Group holds the limits of one container, and the control groups that enforce them, from before its start
// until after its end. [Start] makes it. Its methods are safe for concurrent use.
type Group struct {
	id  string
	o   Options
	why map[string]error // why a controller is not available

	life    sync.RWMutex // guards the fields below; taken before mu
	members []*member
	pidfd   int // pid 1 of the container, or -1
	closed  bool

	mu       sync.Mutex // guards the fields below
	l        Limits
	enforced []Enforcement
	disks    []uint64
	pid      int // pid 1 of the container, or 0
	counts   counts

	watcher watcher
}

// Start creates the control groups that enforce l on a container; without limits it creates none. The caller
// closes the group, even if the container never starts. id is the sandbox's id, of letters, digits and "._-";
// a supervisor has one group for each id at a time.
//
// Cost: 0.5 ms, with every limit. Errors, after which nothing is left behind: [errs.ErrInvalid];
// [errs.ErrNotSupported] for a limit that this host cannot enforce; [errs.ErrDenied]; [errs.ErrBusy].
func Start(ctx context.Context, id string, l Limits, o Options) (*Group, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, &errs.Error{Op: "making a control group", Path: id, Kind: errs.ErrInvalid, Err: errors.New("not a valid sandbox id")}
	}
	g := &Group{id: id, o: o, pidfd: -1, why: map[string]error{}}
	g.watcher.init()
	if l == (Limits{}) && !o.Count {
		return g, nil
	}
	if err := g.start(ctx, l); err != nil {
		return nil, errors.Join(err, g.Close(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *Group) start(ctx context.Context, l Limits) error {
	var err error
	if l.anyRate() || g.o.Count {
		if g.disks, err = disks(g.o.Devices); err != nil && l.anyRate() && !g.o.BestEffort {
			return err
		}
	}
	if !g.o.noCgroups {
		if err := g.makeCgroups(ctx, l); err != nil {
			return err
		}
	}
	held, err := g.plan(l)
	if err != nil {
		return err
	}
	if err := apply(ctx, g.settings(Limits{}), g.settings(l)); err != nil {
		return err
	}
	g.l, g.enforced = l, held
	return g.watch()
}

// makeCgroups creates a control group in every cgroup hierarchy, whether or not a limit in l needs it, so
// that limits can be set later, everything is counted, and all processes can be stopped and killed at once.
func (g *Group) makeCgroups(ctx context.Context, l Limits) error {
	self, err := proc.Identify(os.Getpid())
	if err != nil {
		return failed("making a control group", "/proc/self/stat", err)
	}
	found, err := hierarchies()
	if err != nil {
		return failed("looking for control groups", "/proc", err)
	}
	found, noScope := withScope(ctx, found, l)
	name := groupName{g.id, self}.String()
	first := make([]string, 0, 8) // the controllers of version 1
	for _, h := range found {
		first = append(first, h.controllers...)
	}
	for _, h := range found {
		var wanted []string
		for _, c := range [...]string{"cpu", "memory", "pids", "io"} {
			if h.version == 2 && !slices.Contains(first, c) && !(c == "io" && slices.Contains(first, "blkio")) {
				wanted = append(wanted, c)
			}
		}
		m, err := newMember(ctx, h, name, wanted)
		if errors.Is(err, errs.ErrInterrupted) || errors.Is(err, os.ErrExist) {
			return err
		}
		if m != nil {
			g.members = append(g.members, m)
		}
		for _, c := range slices.Concat(h.controllers, wanted) {
			if err != nil && (m == nil || !m.has(c)) {
				if g.why[c] = err; noScope != nil {
					g.why[c] = fmt.Errorf("%w; %w", err, noScope)
				}
			}
		}
	}
	return nil
}

// find returns the container's control group that has at least one of the cgroup controllers ("memory",
// "cpu"), or nil. With cgroup version 1 a container has a control group in each of several hierarchies.
func (g *Group) find(controllers ...string) *member {
	for _, m := range g.members {
		if slices.ContainsFunc(controllers, m.has) {
			return m
		}
	}
	return nil
}

// unified returns the container's control group of cgroup version 2, or nil if it has none because the host
// has no such hierarchy that can be used.
func (g *Group) unified() *member {
	for _, m := range g.members {
		if m.version == 2 {
			return m
		}
	}
	return nil
}

// Cgroups returns the open directories of the control groups that pid 1 of the container must enter before any
// other process starts: any number of version 1, at most one of version 2. The group closes them.
func (g *Group) Cgroups() []*os.File {
	g.life.RLock()
	defer g.life.RUnlock()
	if g.closed {
		return nil
	}
	var dirs []*os.File
	for _, m := range g.members {
		dirs = append(dirs, m.dir)
	}
	return dirs
}

// Attach sets the pid, in this process's namespace, of pid 1 of the container, and starts the watcher, which
// notices limits that are hit. It returns an error if the process is not in [Group.Cgroups], because no limit
// would apply.
func (g *Group) Attach(pid int) error {
	g.life.Lock()
	defer g.life.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return closed("watching the sandbox")
	}
	if g.pid != 0 {
		return &errs.Error{Op: "watching the sandbox", Kind: errs.ErrBusy, Err: errors.New("another pid 1 is attached already")}
	}
	if err := g.inside(pid); err != nil {
		return err
	}
	if len(g.enforced) == 0 && !g.o.Count {
		return nil // no limit needs the watcher
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // the process has ended
	}
	if err != nil {
		return failed("watching the sandbox", "", err)
	}
	g.pid, g.pidfd = pid, pidfd
	g.watcher.poke()
	return nil
}

// inside returns an error if the live process pid is not in every control group of g, since a group's limits
// would then not apply to it.
func (g *Group) inside(pid int) error {
	if len(g.members) == 0 {
		return nil
	}
	file := "/proc/" + strconv.Itoa(pid) + "/cgroup"
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return failed("watching the sandbox", file, err)
	}
	name, in := filepath.Base(g.members[0].path), 0
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSuffix(line, "\n"), "/"+name) {
			in++
		}
	}
	if in == len(g.members) {
		return nil
	}
	if p, err := proc.Identify(pid); err == nil && proc.Alive(p) {
		return &errs.Error{
			Op: "watching the sandbox", Path: file, Kind: errs.ErrInvalid,
			Err: fmt.Errorf("pid 1 is in %d of %d control groups", in, len(g.members)),
		}
	}
	return nil // the process has ended
}

// Set changes the limits of a live group: all of them, or none with an error that names the limit that could
// not be changed. It fails if the new memory limit is less than the memory in use and the kernel cannot reclaim
// enough. Limits enforced by rlimit (see [ByRlimit]) can be changed only before [Group.Attach].
//
// Cost: 20 µs for each limit. Errors: those of [Start]; [errs.ErrClosed].
func (g *Group) Set(ctx context.Context, l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	g.life.RLock()
	defer g.life.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return closed("setting limits")
	}
	if l == g.l {
		return nil
	}
	if g.l == (Limits{}) && !g.o.Count {
		return &errs.Error{Op: "setting limits", Kind: errs.ErrNotSupported, Err: errors.New("the sandbox was started without limits")}
	}
	disksWere := g.disks
	if l.anyRate() && len(g.disks) == 0 {
		var err error
		if g.disks, err = disks(g.o.Devices); err != nil && !g.o.BestEffort {
			return err
		}
	}
	held, err := g.plan(l)
	if err == nil {
		err = g.checkFixed(l, held)
	}
	if err == nil {
		err = reclaim(g.find("memory"), l.Memory)
	}
	if err == nil {
		err = apply(ctx, g.settings(g.l), g.settings(l))
	}
	if err != nil {
		g.disks = disksWere
		return err
	}
	g.l, g.enforced = l, held
	g.counts.forget()
	g.watcher.poke()
	return nil
}

// checkFixed returns an error if l changes a limit that each process of the container got when it started
// (rlimit), and that therefore cannot change now. held says how l would be enforced. A limit of memory or CPU
// time may become lower, since snapfs also measures these itself and kills a container above them.
func (g *Group) checkFixed(l Limits, held []Enforcement) error {
	if g.pid == 0 {
		return nil
	}
	was, is := rlimits(g.l, g.enforced), rlimits(l, held)
	for _, part := range [...]Part{PartFiles, PartPIDs, PartMemory, PartCPUTime} {
		watched := part == PartMemory || part == PartCPUTime
		if was[part] == is[part] || watched && (was[part].Max == 0 || is[part].Max != 0 && is[part].Max < was[part].Max) {
			continue
		}
		return &errs.Error{
			Op: "limiting " + string(part), Kind: errs.ErrNotSupported,
			Err: errors.New("each process received this limit when it started: it can change only at the next start"),
		}
	}
	return nil
}

// Close removes the group's control groups. The container's processes should have ended or been killed: Close
// waits at most five seconds for dying ones. An error names the groups that remain, and Close may be called
// again. Closing a closed group does nothing. Cost: 0.3 ms.
func (g *Group) Close(ctx context.Context) error {
	g.watcher.stop()
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	g.life.Lock()
	defer g.life.Unlock()
	g.closed = true
	if g.pidfd >= 0 {
		unix.Close(g.pidfd)
		g.pidfd = -1
	}
	var failures []error
	g.members = slices.DeleteFunc(g.members, func(m *member) bool {
		err := m.removeSoon(ctx)
		if err != nil {
			failures = append(failures, err)
		}
		return err == nil
	})
	return errors.Join(failures...)
}

// maxWait bounds the wait until the killed processes of a container have ended and its control groups are
// removed, which normally takes milliseconds. After it, kill and Close return an error.
const maxWait = 5 * time.Second

func validID(id string) bool {
	for _, r := range id {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return false
		}
	}
	return id != "" && len(id) <= 128
}
