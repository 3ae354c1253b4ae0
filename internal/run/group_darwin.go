package run

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader returns attributes of a group leader. macOS has no parent-death signal.
func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// mortal returns attributes of a plain process: macOS has no parent-death signal.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// members lists the live processes for which ours returns true. Their sessions are not known.
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
