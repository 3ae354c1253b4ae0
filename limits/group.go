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

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A Group is the limits of one box, from before it starts until after its end.
// Its methods are safe for several goroutines.
type Group struct {
	id  string
	o   Options
	why map[string]error // why a controller is not to be had

	life    sync.RWMutex // held for as long as what follows is used; taken before mu
	members []*member
	pidfd   int // pid 1 of the box, or -1
	closed  bool

	mu    sync.Mutex // guards what follows
	l     Limits
	held  []Held
	disks []uint64
	pid   int // pid 1 of the box, or 0
	tally tally

	watcher watcher
}

// Start makes what holds the limits: nothing where there are none. The group is
// the caller's to close, also where its box never starts. id is the sandbox's,
// of letters, digits and "._-"; one keeper has one group for it at a time.
//
// Cost: 0.5 ms, with every limit. Errors: [ErrInvalid], [ErrNotSupported] for a
// limit that cannot be held here, [ErrDenied], [ErrBusy]; they leave nothing
// behind.
func Start(ctx context.Context, id string, l Limits, o Options) (*Group, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, &Error{Op: "making a control group", Path: id, Kind: ErrInvalid, Err: errors.New("not the name of a sandbox")}
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
	if !g.o.bare {
		if err := g.make(ctx, l); err != nil {
			return err
		}
	}
	held, err := g.judge(l)
	if err != nil {
		return err
	}
	if err := turn(ctx, g.knobs(Limits{}), g.knobs(l)); err != nil {
		return err
	}
	g.l, g.held = l, held
	return g.watch()
}

// make makes a control group in every hierarchy, whether a limit needs it or not:
// so that one can be set later, everything is counted, and all can be stopped and
// killed at once.
func (g *Group) make(ctx context.Context, l Limits) error {
	self, err := kernel.Identify(os.Getpid())
	if err != nil {
		return failed("making a control group", "/proc/self/stat", err)
	}
	found, err := hierarchies()
	if err != nil {
		return failed("looking for control groups", "/proc", err)
	}
	found, noScope := scoped(ctx, found, l)
	name := mark{g.id, self}.String()
	first := make([]string, 0, 8) // the controllers that version 1 has
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
		if errors.Is(err, ErrInterrupted) || errors.Is(err, os.ErrExist) {
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

// find is the control group that has one of these controllers, or nil.
func (g *Group) find(controllers ...string) *member {
	for _, m := range g.members {
		if slices.ContainsFunc(controllers, m.has) {
			return m
		}
	}
	return nil
}

// unified is the control group of version 2, or nil.
func (g *Group) unified() *member {
	for _, m := range g.members {
		if m.version == 2 {
			return m
		}
	}
	return nil
}

// Cgroups are the open directories of the control groups that pid 1 of the box
// must be in before anything runs in it: any number of version 1, at most one of
// version 2. They stay the group's.
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

// Attach tells which process is pid 1 of the box, by its number here. From then
// on what is watched is watched. It is an error if the process is not in the
// group's [Group.Cgroups]: nothing would hold it.
func (g *Group) Attach(pid int) error {
	g.life.Lock()
	defer g.life.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return &Error{Op: "watching the sandbox", Kind: ErrClosed}
	}
	if g.pid != 0 {
		return &Error{Op: "watching the sandbox", Kind: ErrBusy, Err: errors.New("another process is its pid 1 already")}
	}
	if err := g.inside(pid); err != nil {
		return err
	}
	if len(g.held) == 0 && !g.o.Count {
		return nil // nothing is to be watched
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended
	}
	if err != nil {
		return failed("watching the sandbox", "", err)
	}
	g.pid, g.pidfd = pid, pidfd
	g.watcher.poke()
	return nil
}

// inside checks that a process is in every control group of this one.
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
	if p, err := kernel.Identify(pid); err == nil && kernel.Alive(p) {
		return &Error{
			Op: "watching the sandbox", Path: file, Kind: ErrInvalid,
			Err: fmt.Errorf("it is in %d of the %d control groups that are to hold it", in, len(g.members)),
		}
	}
	return nil // it has ended: there is nothing to hold
}

// Set changes the limits of a live group: all of them, or none, with an error
// that names the limit which could not be changed. Less memory than is in use is
// such an error, where none of it can be taken back. What a limit of each
// process holds (see [ByRlimit]) can be changed only before [Group.Attach].
//
// Cost: 20 µs for each. Errors: those of [Start], [ErrClosed].
func (g *Group) Set(ctx context.Context, l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	g.life.RLock()
	defer g.life.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return &Error{Op: "setting limits", Kind: ErrClosed}
	}
	if l == g.l {
		return nil
	}
	if g.l == (Limits{}) && !g.o.Count {
		return &Error{Op: "setting limits", Kind: ErrNotSupported, Err: errors.New("the sandbox was started without any")}
	}
	disksWere := g.disks
	if l.anyRate() && len(g.disks) == 0 {
		var err error
		if g.disks, err = disks(g.o.Devices); err != nil && !g.o.BestEffort {
			return err
		}
	}
	held, err := g.judge(l)
	if err == nil {
		err = g.settled(l, held)
	}
	if err == nil {
		err = room(g.find("memory"), l.Memory)
	}
	if err == nil {
		err = turn(ctx, g.knobs(g.l), g.knobs(l))
	}
	if err != nil {
		g.disks = disksWere
		return err
	}
	g.l, g.held = l, held
	g.tally.forget()
	g.watcher.poke()
	return nil
}

// settled refuses to change what each process was given when it started. What
// is watched as well may become less: then only the watcher knows.
func (g *Group) settled(l Limits, held []Held) error {
	if g.pid == 0 {
		return nil
	}
	was, is := rlimits(g.l, g.held), rlimits(l, held)
	for _, part := range [...]Part{PartFiles, PartPIDs, PartMemory, PartCPUTime} {
		watched := part == PartMemory || part == PartCPUTime
		if was[part] == is[part] || watched && (was[part].Max == 0 || is[part].Max != 0 && is[part].Max < was[part].Max) {
			continue
		}
		return &Error{
			Op: "limiting " + string(part), Kind: ErrNotSupported,
			Err: errors.New("each process got its limit when it started: it can be changed for the next start only"),
		}
	}
	return nil
}

// Kill ends every process in the box and answers when none is left. At most it
// takes five seconds. Errors: [ErrBusy] when some do not end, which are then in
// the kernel's hands; [ErrInterrupted].
func (g *Group) Kill(ctx context.Context) error {
	g.life.RLock()
	defer g.life.RUnlock()
	if g.closed {
		return &Error{Op: "killing the sandbox", Kind: ErrClosed}
	}
	return g.kill(ctx)
}

// Close takes the control groups away. The processes should have ended, or been
// killed: it waits for those that are dying, for five seconds at most. An error
// names what stays, and Close may be called again. Closing what is closed does
// nothing. Cost: 0.3 ms.
func (g *Group) Close(ctx context.Context) error {
	g.watcher.stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	g.life.Lock()
	defer g.life.Unlock()
	if !g.closed {
		g.closed = true
		close(g.watcher.events)
	}
	if g.pidfd >= 0 {
		unix.Close(g.pidfd)
		g.pidfd = -1
	}
	var errs []error
	g.members = slices.DeleteFunc(g.members, func(m *member) bool {
		err := m.removeSoon(ctx)
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	})
	return errors.Join(errs...)
}

// patience is how long something is waited for that ought to take milliseconds.
const patience = 5 * time.Second

func validID(id string) bool {
	for _, r := range id {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return false
		}
	}
	return id != "" && len(id) <= 128
}
