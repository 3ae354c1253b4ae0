package probe

import (
	"context"
	"errors"
	"strconv"
	"unsafe"

	"github.com/snapfs/snapfs/internal/forkcall"
	"golang.org/x/sys/unix"
)

func probeNoNewPrivs(context.Context) Result {
	p := &forkcall.Program{}
	p.Call("prctl", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if failed, err := p.Run(0); err != nil {
		return no(failed + ": " + err.Error())
	}
	return yes("")
}

// probeSeccomp finds out whether seccomp works here, by installing a filter that allows everything in a child
// process.
func probeSeccomp(context.Context) Result {
	const setModeFilter = 1 // SECCOMP_SET_MODE_FILTER of linux/seccomp.h
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}
	filter := &unix.SockFprog{Len: 1, Filter: &allow}
	p := &forkcall.Program{}
	p.Call("prctl", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	p.Call("seccomp", unix.SYS_SECCOMP, setModeFilter, 0, unsafe.Pointer(filter))
	failed, err := p.Run(0)
	switch {
	case err == nil:
		return yes("")
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return no("this kernel is built without it")
	}
	return no(failed + ": " + err.Error())
}

func probeLandlock(context.Context) Result {
	abi, err := landlockABI()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return no("this kernel is built without it")
	case errors.Is(err, unix.EOPNOTSUPP):
		return no("switched off at boot: add landlock to lsm= on the kernel's command line")
	case err != nil:
		return unknown(err.Error())
	case abi < 6:
		return yes("version " + strconv.Itoa(abi) + ", without scopes for signals and sockets (6)")
	}
	return yes("version " + strconv.Itoa(abi))
}

// landlockABI returns the version of the kernel's Landlock ABI (landlock(7)), by which callers know what
// Landlock can restrict. unix.ENOSYS: not built into the kernel; unix.EOPNOTSUPP: disabled at boot. Cost: one
// system call.
func landlockABI() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}
