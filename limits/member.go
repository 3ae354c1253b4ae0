//go:build linux

package limits

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/poll"
)

// A member is the control group of a [Group] in one cgroup hierarchy, with the files that set its limits.
type member struct {
	version     int
	controllers []string
	path        string
	dir         *os.File
	fd          int    // descriptor of dir
	parent      string // the directory of this package above it, or ""
}

// newMember creates a control group called name in the best directory of the hierarchy h: the first in which
// it has all the wanted controllers, else the first at all, which can still kill and count. why is the reason
// that a controller is missing.
//
// After an error nothing is left except enabled controllers. The error's kind is errs.ErrInterrupted if a
// test made the step fail, by ctx.
func newMember(ctx context.Context, h hierarchy, name string, wanted []string) (m *member, why error) {
	places := h.candidates(len(wanted) > 0)
	if len(places) == 0 {
		return nil, &errs.Error{
			Op: "making a control group", Path: h.mount, Kind: errs.ErrNotSupported,
			Err: errors.New("no control group without processes is delegated to this user"),
		}
	}
	for _, all := range []bool{true, false} {
		for _, chain := range places {
			m, err := h.makeIn(ctx, chain, name, wanted, all)
			if why == nil {
				why = err
			}
			if m != nil || errors.Is(err, errs.ErrInterrupted) || errors.Is(err, fs.ErrExist) {
				return m, why
			}
		}
	}
	return nil, why
}

// makeIn creates a container's control group called name. chain lists the directories above the group,
// outermost first; makeIn creates those that are missing. Another supervisor may remove one of them as soon
// as it is empty; then makeIn starts over. wanted are the controllers that the group should have. With all, a
// missing controller is an error; otherwise lacks is the reason that a controller is missing from m.
func (h hierarchy) makeIn(ctx context.Context, chain []string, name string, wanted []string, all bool) (m *member, lacks error) {
	last := len(chain) - 1
	m = &member{version: h.version, controllers: h.controllers, path: filepath.Join(chain[last], name)}
	if last > 0 {
		m.parent = chain[last]
	}
	for try := 0; ; try++ {
		var err error
		lacks, err = h.prepare(ctx, chain, wanted, m)
		if all && err == nil {
			err = lacks
		}
		if err == nil {
			if err = step(ctx, "make the control group"); err == nil {
				err = os.Mkdir(m.path, 0o755)
			}
		}
		if err == nil {
			break
		}
		if m.parent != "" {
			_ = os.Remove(m.parent) // fails if another supervisor has a group in it
		}
		if !errors.Is(err, fs.ErrNotExist) || try == 20 {
			return nil, asError("making a control group", m.path, err)
		}
	}
	if err := m.open(); err != nil {
		return nil, failed("making a control group", m.path, errors.Join(err, m.remove()))
	}
	return m, lacks
}

// open opens the directory m.path of the control group as m.dir. Go's poller is not used, since it does not
// support such directories.
func (m *member) open() error {
	fd, err := unix.Open(m.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: m.path, Err: err}
	}
	m.fd, m.dir = fd, os.NewFile(uintptr(fd), m.path)
	return nil
}

// prepare creates the directories of chain, which lie above the control group m that is made next, and in
// version 2 enables the wanted cgroup controllers for m. lacks is the reason that a controller is missing.
func (h hierarchy) prepare(ctx context.Context, chain, wanted []string, m *member) (lacks, err error) {
	if h.version == 1 {
		return nil, nil
	}
	for i, dir := range chain {
		if i > 0 {
			if err := step(ctx, "make the directory of control groups"); err != nil {
				return nil, err
			}
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
		}
		if m.controllers, lacks, err = enable(dir, wanted); err != nil {
			return nil, err
		}
	}
	return lacks, nil
}

// step is a point called what, before a change of control groups, at which a test can make the operation
// fail. It returns the test's error in the form of this package's errors, or nil.
func step(ctx context.Context, what string) error {
	if err := fault.Point(ctx, what); err != nil {
		return &errs.Error{Op: what, Kind: errs.ErrInterrupted, Err: err}
	}
	return nil
}

func asError(op, path string, err error) *errs.Error {
	var e *errs.Error
	if errors.As(err, &e) {
		return e
	}
	return failed(op, path, err)
}

func (m *member) has(controller string) bool { return slices.Contains(m.controllers, controller) }

// by returns the kind of enforcement that the control group m provides, by its version: [ByCgroup2] or
// [ByCgroup1].
func (m *member) by() By {
	if m.version == 1 {
		return ByCgroup1
	}
	return ByCgroup2
}

// write writes value to a file of the control group m, such as memory.max, to set a limit.
func (m *member) write(file, value string) error {
	fd, err := unix.Openat(m.fd, file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: m.path + "/" + file, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: m.path + "/" + file, Err: err}
	}
	return nil
}

// read returns the content of a file of the control group m, such as memory.current. Cost: 5 to 20 µs.
func (m *member) read(file string) ([]byte, error) {
	fd, err := unix.Openat(m.fd, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: m.path + "/" + file, Err: err}
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 1024)
	for {
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: m.path + "/" + file, Err: err}
		case n == 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
			if len(buf) == cap(buf) {
				buf = slices.Grow(buf, len(buf))
			}
		}
	}
}

// number reads a file of the control group m that holds one number, such as pids.current; false if it cannot
// be read or holds something else.
func (m *member) number(file string) (int64, bool) {
	text, err := m.read(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field reads a file of the control group m with lines "name number", such as memory.events, and returns the
// number of the line name; false if there is none.
func (m *member) field(file, name string) (int64, bool) {
	text, err := m.read(file)
	if err != nil {
		return 0, false
	}
	return field(text, name)
}

func field(text []byte, name string) (int64, bool) {
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if string(key) == name {
			n, err := strconv.ParseInt(string(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// procs lists the pids of the processes in the control group; those of an outer pid namespace are 0.
func (m *member) procs() ([]int, error) {
	text, err := m.read("cgroup.procs")
	if err != nil {
		return nil, err
	}
	var list []int
	for _, s := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(s); err == nil {
			list = append(list, pid)
		}
	}
	return list, nil
}

// remove removes the control group m, which must be empty. It waits a short time for processes that are
// ending.
func (m *member) remove() error {
	if m.dir != nil {
		m.dir.Close()
		m.dir = nil
	}
	if err := os.Remove(m.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.parent != "" {
		_ = os.Remove(m.parent) // fails while another supervisor has a group in it
	}
	return nil
}

// removeSoon removes the control group m as soon as the last process in it has ended. It waits until ctx
// ends, then returns ErrBusy with the processes that remain.
func (m *member) removeSoon(ctx context.Context) error {
	var err error
	_ = poll.Until(ctx, 100*time.Microsecond, 20*time.Millisecond, func() (bool, error) {
		err = m.remove()
		return !errors.Is(err, unix.EBUSY), nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return &errs.Error{Op: "removing a control group", Path: m.path, Kind: errs.ErrBusy, Err: errors.New(m.occupants())}
	}
	return failed("removing a control group", m.path, err)
}

// occupants returns a text for an error that says why the closed control group m cannot be removed: it names
// the processes that are still in it.
func (m *member) occupants() string {
	procs, err := os.ReadFile(m.path + "/cgroup.procs")
	if err != nil || len(procs) == 0 {
		return "the kernel has not released its last process"
	}
	return "it still contains processes: " + strings.Join(strings.Fields(string(procs)), ", ")
}
