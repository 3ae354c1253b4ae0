//go:build linux

package isolate

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// cloneError returns the error for a failed fork of a container's pid 1, with hints that name the commands by
// which the user can permit it.
func cloneError(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return planError(err)
	}
	e := &errs.Error{Op: "making a user namespace", Kind: errs.ErrDenied, Err: errno, Hints: hintsFor(errno)}
	switch errno {
	case unix.EPERM, unix.EACCES:
		if len(e.Hints) == 0 {
			e.Err = fmt.Errorf("%w: a container, a chroot or a security module around this process forbids them", errno)
			e.Hints = []string{"snapfs doctor"}
		}
	case unix.ENOSYS, unix.EINVAL:
		e.Kind = errs.ErrNotSupported
	case unix.EAGAIN, unix.ENOMEM, unix.EUSERS:
		e.Kind = errs.ErrNoSpace
	}
	return e
}

// hintsFor returns the commands that lift the usual restrictions on user namespaces, if this host has them.
// errno is the error of starting a container.
func hintsFor(errno syscall.Errno) []string {
	if errno != unix.EPERM && errno != unix.EACCES && errno != unix.ENOSPC {
		return nil
	}
	var hints []string
	for _, k := range []struct{ file, bad, fix string }{
		{"kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"},
	} {
		value, err := os.ReadFile("/proc/sys/" + k.file)
		if err == nil && strings.TrimSpace(string(value)) == k.bad {
			hints = append(hints, k.fix)
		}
	}
	return hints
}
