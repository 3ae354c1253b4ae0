//go:build linux

package limits

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"golang.org/x/sys/unix"
)

// A groupName is the name of a control group: the sandbox's id, and the process that created the group and
// has to remove it.
type groupName struct {
	id    string
	owner proc.Process
}

const namePrefix = "snapfs-"

func (n groupName) String() string {
	return namePrefix + n.id + "-" + strconv.Itoa(n.owner.PID) + "-" + strconv.FormatUint(n.owner.Start, 10)
}

// parseGroupName parses the name of a control group, which must be in the exact form of String; false for the
// name of another program's group.
func parseGroupName(name string) (groupName, bool) {
	rest, ok := strings.CutPrefix(name, namePrefix)
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 0 {
		return groupName{}, false
	}
	j := strings.LastIndexByte(rest[:i], '-')
	if j < 0 {
		return groupName{}, false
	}
	pid, err1 := strconv.ParseUint(rest[j+1:i], 10, 31)
	start, err2 := strconv.ParseUint(rest[i+1:], 10, 64)
	k := groupName{rest[:j], proc.Process{PID: int(pid), Start: start}}
	return k, err1 == nil && err2 == nil && pid > 0 && validID(k.id) && k.String() == name
}

// Sweep kills the processes in control groups of killed supervisors and removes these groups. It ignores
// groups without a [groupName], groups of other users, and groups of supervisors that may be alive, here or,
// judging by the processes of this machine, in another pid namespace.
//
// Cost: 20 µs for each control group of the machine. Errors name the groups that remain; Sweep continues with
// the others.
func Sweep(ctx context.Context) error {
	found, err := hierarchies()
	if err != nil {
		return failed("looking for control groups", "/proc", err)
	}
	left := map[groupName][]*member{} // of all hierarchies: a frozen process in one must be thawed there
	for _, h := range found {
		groups(h.mount, func(path string, k groupName) {
			if !ours(path) || proc.Alive(k.owner) {
				return
			}
			m := &member{version: h.version, controllers: h.controllers, path: path}
			if m.open() != nil {
				return // another process removed it
			}
			if above := filepath.Dir(path); h.version == 2 && filepath.Base(above) == parent {
				m.parent = above
			}
			left[k] = append(left[k], m)
		})
	}
	var failures []error
	for k, members := range left {
		failures = append(failures, sweepOne(ctx, k, members))
	}
	if ctx.Err() != nil {
		failures = append(failures, &errs.Error{Op: "removing control groups", Kind: errs.ErrInterrupted, Err: ctx.Err()})
	}
	return errors.Join(failures...)
}

// groups calls f for each control group below dir whose name is a [groupName], so that this package made it.
// f gets the group's directory and its parsed name.
func groups(dir string, f func(path string, k groupName)) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return // gone, or another user's
	}
	for _, d := range list {
		if !d.IsDir() {
			continue
		}
		path := filepath.Join(dir, d.Name())
		if k, ok := parseGroupName(d.Name()); ok {
			f(path, k)
		} else {
			groups(path, f)
		}
	}
}

func ours(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && int(st.Uid) == os.Geteuid()
}

// sweepOne kills the processes in members, the control groups that have the name k, and removes these groups,
// if their supervisor does not run in this pid namespace. It does nothing if the supervisor may run in
// another one.
func sweepOne(ctx context.Context, k groupName, members []*member) error {
	defer func() {
		for _, m := range members {
			m.dir.Close()
		}
	}()
	if ctx.Err() != nil || runsInOtherNamespace(k.owner) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := killGroups(ctx, members); err != nil {
		return err
	}
	var failures []error
	for _, m := range members {
		failures = append(failures, m.removeSoon(ctx))
	}
	return errors.Join(failures...)
}

// runsInOtherNamespace reports whether a process with the start time of p runs on this machine that has
// p's pid in another pid namespace.
func runsInOtherNamespace(p proc.Process) bool {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return true // unknown: assume that it runs
	}
	for _, d := range list {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if other, err := proc.Identify(pid); err != nil || other.Start != p.Start || !proc.Alive(other) {
			continue
		}
		status, err := os.ReadFile("/proc/" + d.Name() + "/status")
		if err != nil {
			continue
		}
		for line := range bytes.Lines(status) {
			numbers, ok := bytes.CutPrefix(line, []byte("NSpid:"))
			fields := strings.Fields(string(numbers))
			if ok && len(fields) > 0 && fields[len(fields)-1] == strconv.Itoa(p.PID) {
				return true
			}
		}
	}
	return false
}
