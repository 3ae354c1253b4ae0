//go:build linux

// Package freezer stops and continues all processes of a control group by the file of the kernel that does so: its
// freezer.
package freezer

import (
	"bufio"
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Freezer is the directory of a control group with the file that stops and continues every process in it:
// cgroup.freeze in version 2 (Documentation/admin-guide/cgroup-v2.rst), freezer.state in version 1
// (cgroup-v1/freezer-subsystem.rst).
type Freezer struct {
	dir                   *os.File
	file, on, off         string
	stateFile, frozenText string // the file that reports the state, and its text once all are frozen
}

// Of returns the freezer of the first of the control groups that has one; false if none has. The directories of the
// control groups are used, and stay open, as long as the freezer is.
func Of(cgroups []*os.File) (Freezer, bool) {
	for _, dir := range cgroups {
		for _, f := range []Freezer{
			{dir, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"},
			{dir, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"},
		} {
			if unix.Faccessat(int(dir.Fd()), f.file, unix.W_OK, 0) == nil {
				return f, true
			}
		}
	}
	return Freezer{}, false
}

// Freeze orders all processes of the control group to stop, and does not wait for that: see [Freezer.Frozen]. Errors:
// those of the kernel, as [os.PathError]; then nothing has changed.
func (f Freezer) Freeze() error { return f.write(f.on) }

// Thaw lets the processes of the control group continue. Errors: as those of Freeze.
func (f Freezer) Thaw() error { return f.write(f.off) }

func (f Freezer) write(value string) error {
	fd, err := unix.Openat(int(f.dir.Fd()), f.file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: f.file, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: f.file, Err: err}
	}
	return nil
}

// Frozen reports whether all processes of the control group have stopped. Errors: those of the kernel.
func (f Freezer) Frozen() (bool, error) {
	var buf [256]byte
	fd, err := unix.Openat(int(f.dir.Fd()), f.stateFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: f.stateFile, Err: err}
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return false, err
	}
	return bytes.Contains(buf[:n], []byte(f.frozenText)), nil
}

// KillAll sends SIGKILL to every process in the control group. A frozen process receives the signal when it is
// thawed; the kernel does not reuse its pid before.
func (f Freezer) KillAll() {
	fd, err := unix.Openat(int(f.dir.Fd()), "cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	list := os.NewFile(uintptr(fd), "cgroup.procs")
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL) // the process may have ended
		}
	}
}
