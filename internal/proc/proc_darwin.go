package proc

import (
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// The states of a process that macOS reports in struct extern_proc (sys/proc.h): stopped, or ended and not
// yet reaped.
const (
	procStopped = 4 // SSTOP
	procZombie  = 5 // SZOMB
)

// Identify returns the process that has this pid now, without the id of the boot. Errors match fs.ErrNotExist
// if there is none. A zombie still has its pid.
func Identify(pid int) (Process, error) {
	k, err := lookUp(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: startOf(k)}, nil
}

// Alive reports whether exactly this process still runs. A zombie does not. If the system does
// not report it, Alive returns true, because a caller must not free what the process might
// still use.
func Alive(p Process) bool {
	if p.Boot != "" {
		if boot, err := BootID(); err == nil && boot != p.Boot {
			return false
		}
	}
	k, err := lookUp(p.PID)
	if err != nil {
		return err != fs.ErrNotExist
	}
	return startOf(k) == p.Start && k.Proc.P_stat != procZombie
}

// Stopped reports whether exactly this process is stopped by SIGSTOP or another stop signal.
// It returns false if the system does not report it.
func Stopped(p Process) bool {
	k, err := lookUp(p.PID)
	return err == nil && startOf(k) == p.Start && k.Proc.P_stat == procStopped
}

func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	return strings.ToLower(id), err
}

func startOf(k *unix.KinfoProc) uint64 { return uint64(k.Proc.P_starttime.Nano() / 1000) }

// lookUp returns the kernel's data of the process with this pid. If there is none, the error is
// fs.ErrNotExist, for which the system library returns EIO.
func lookUp(pid int) (*unix.KinfoProc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err == unix.EIO || err == unix.ESRCH || err == nil && int(k.Proc.P_pid) != pid {
		return nil, fs.ErrNotExist
	}
	return k, err
}
