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

	"github.com/snapfs/snapfs/internal/fault"
)

// A member is one control group of a Group, in one hierarchy.
type member struct {
	version     int
	controllers []string
	path        string
	dir         *os.File
	fd          int    // of dir
	parent      string // the directory of this package's own above it, or ""
}

// newMember makes a control group of that name in the best place of a hierarchy:
// the first that has all the controllers, else the first at all, which still
// kills and counts. why says what keeps a controller away.
// An error leaves nothing behind but controllers that were given to the groups of
// a directory. Its kind is ErrInterrupted where ctx's plan forbade it.
func newMember(ctx context.Context, h hierarchy, name string, wanted []string) (m *member, why error) {
	places := h.places(len(wanted) > 0)
	if len(places) == 0 {
		return nil, &Error{
			Op: "making a control group", Path: h.mount, Kind: ErrNotSupported,
			Err: errors.New("no group here is handed to this user, free of processes"),
		}
	}
	for _, all := range []bool{true, false} {
		for _, chain := range places {
			m, err := h.makeIn(ctx, chain, name, wanted, all)
			if why == nil {
				why = err
			}
			if m != nil || errors.Is(err, ErrInterrupted) || errors.Is(err, fs.ErrExist) {
				return m, why
			}
		}
	}
	return nil, why
}

// makeIn makes a group in the last directory of a chain. Another keeper may take
// that directory away as soon as it is empty: then all begins anew. The error is
// there with the member, where it is about a controller that is away; unless all
// must be there.
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
			_ = os.Remove(m.parent) // not where another keeper has a group in it
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

// open opens the directory of the group, past Go's poller, which has no use for it.
func (m *member) open() error {
	fd, err := unix.Open(m.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: m.path, Err: err}
	}
	m.fd, m.dir = fd, os.NewFile(uintptr(fd), m.path)
	return nil
}

// prepare makes the directory and gives controllers, in version 2. What cannot be
// given lacks.
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

// step is a point of rehearsal, as an error of this package.
func step(ctx context.Context, what string) error {
	if err := fault.Point(ctx, what); err != nil {
		return &Error{Op: what, Kind: ErrInterrupted, Err: err}
	}
	return nil
}

func asError(op, path string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return failed(op, path, err)
}

func (m *member) has(controller string) bool { return slices.Contains(m.controllers, controller) }

// by is what holds a limit that this group holds.
func (m *member) by() By {
	if m.version == 1 {
		return ByCgroup1
	}
	return ByCgroup2
}

// write writes a value to a file of the group.
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

// read reads a file of the group whole. Cost: 5 to 20 µs.
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

// number reads a file that is one number.
func (m *member) number(file string) (int64, bool) {
	text, err := m.read(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field reads one line "name value" of a file.
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

// procs lists the processes in the group; those of an outer pid namespace are 0.
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

// remove removes the group, which must be empty: of processes that are dying it
// is soon.
func (m *member) remove() error {
	if m.dir != nil {
		m.dir.Close()
		m.dir = nil
	}
	if err := os.Remove(m.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.parent != "" {
		_ = os.Remove(m.parent) // not while another keeper has a group in it
	}
	return nil
}

// removeSoon removes the group as soon as the last process in it has gone.
func (m *member) removeSoon(ctx context.Context) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := m.remove()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return failed("removing a control group", m.path, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return &Error{Op: "removing a control group", Path: m.path, Kind: ErrBusy, Err: errors.New(m.tenants())}
		}
	}
}

// tenants says who is still in a group that was closed.
func (m *member) tenants() string {
	procs, err := os.ReadFile(m.path + "/cgroup.procs")
	if err != nil || len(procs) == 0 {
		return "the kernel has not let go of its last process"
	}
	return "processes are in it: " + strings.Join(strings.Fields(string(procs)), ", ")
}
