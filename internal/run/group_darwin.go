package run

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader returns the attributes for starting a process that leads a new process group. macOS has no
// parent-death signal.
func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// mortal returns the attributes for starting a process that should end with this one. macOS has no
// parent-death signal, so there are none.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// members returns the pids of the running processes for which ours returns true, for ending a program's
// descendants. macOS does not report their sessions.
func members(ours func(member) bool) (pids []int) {
	const zombie = 5 // SZOMB of sys/proc.h
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	for i := range list {
		pid := int(list[i].Proc.P_pid)
		if list[i].Proc.P_stat != zombie && ours(member{pid: pid, group: strconv.Itoa(int(list[i].Eproc.Pgid))}) {
			pids = append(pids, pid)
		}
	}
	return pids
}
