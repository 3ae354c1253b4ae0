package run

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader starts a program as the leader of a group. Nothing ends it with this process.
func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// mortal starts a program that nothing ends with this process.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// members lists the processes that are ours and have not ended. Their sessions are
// not known.
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
