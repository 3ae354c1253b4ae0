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

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A mark is the name of a control group: which sandbox's, and which process made
// it and takes it away.
type mark struct {
	id     string
	keeper kernel.Process
}

const markPrefix = "snapfs-"

func (k mark) String() string {
	return markPrefix + k.id + "-" + strconv.Itoa(k.keeper.PID) + "-" + strconv.FormatUint(k.keeper.Start, 10)
}

// readMark reads a name back. It must be written exactly so.
func readMark(name string) (mark, bool) {
	rest, ok := strings.CutPrefix(name, markPrefix)
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 0 {
		return mark{}, false
	}
	j := strings.LastIndexByte(rest[:i], '-')
	if j < 0 {
		return mark{}, false
	}
	pid, err1 := strconv.ParseUint(rest[j+1:i], 10, 31)
	start, err2 := strconv.ParseUint(rest[i+1:], 10, 64)
	k := mark{rest[:j], kernel.Process{PID: int(pid), Start: start}}
	return k, err1 == nil && err2 == nil && pid > 0 && validID(k.id) && k.String() == name
}

// Sweep removes the control groups that keepers left which have been killed, and
// kills what is still in them. What does not bear the mark of this package is not
// touched, nor is a group of another user, or of a keeper that might live: here
// or, as its processes tell, in another pid namespace.
//
// Cost: 20 µs for each control group of the machine. Errors name what stays; the
// others are swept all the same.
func Sweep(ctx context.Context) error {
	found, err := hierarchies()
	if err != nil {
		return failed("looking for control groups", "/proc", err)
	}
	left := map[mark][]*member{} // in all hierarchies: what is frozen in one ends in none
	for _, h := range found {
		groups(h.mount, func(path string, k mark) {
			if !ours(path) || kernel.Alive(k.keeper) {
				return
			}
			m := &member{version: h.version, controllers: h.controllers, path: path}
			if m.open() != nil {
				return // somebody else removed it
			}
			if above := filepath.Dir(path); h.version == 2 && filepath.Base(above) == parent {
				m.parent = above
			}
			left[k] = append(left[k], m)
		})
	}
	var errs []error
	for k, members := range left {
		errs = append(errs, sweepOne(ctx, k, members))
	}
	if ctx.Err() != nil {
		errs = append(errs, &Error{Op: "removing control groups", Kind: ErrInterrupted, Err: ctx.Err()})
	}
	return errors.Join(errs...)
}

// groups calls f for each marked group beneath dir.
func groups(dir string, f func(path string, k mark)) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return // gone, or another user's
	}
	for _, d := range list {
		if !d.IsDir() {
			continue
		}
		path := filepath.Join(dir, d.Name())
		if k, ok := readMark(d.Name()); ok {
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

// sweepOne removes the groups of one keeper that is not to be seen.
func sweepOne(ctx context.Context, k mark, members []*member) error {
	defer func() {
		for _, m := range members {
			m.dir.Close()
		}
	}()
	if ctx.Err() != nil || elsewhere(k.keeper) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := killGroups(ctx, members); err != nil {
		return err
	}
	var errs []error
	for _, m := range members {
		errs = append(errs, m.removeSoon(ctx))
	}
	return errors.Join(errs...)
}

// elsewhere reports whether a process with this start and, in a pid namespace of
// its own, this number runs on the machine.
func elsewhere(p kernel.Process) bool {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return true // nobody can tell
	}
	for _, d := range list {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if other, err := kernel.Identify(pid); err != nil || other.Start != p.Start || !kernel.Alive(other) {
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
