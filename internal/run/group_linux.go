package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// leader returns the attributes for starting a process that leads a new process group and gets SIGKILL when
// the thread that starts it ends, as when this process is killed.
func leader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// mortal returns the attributes for starting a process that gets SIGKILL when the thread that starts it ends,
// as when this process is killed.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// members returns the pids of the running processes, from /proc, for which ours returns true, for ending a
// program's descendants.
func members(ours func(member) bool) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid; one with /stat makes Glob list each directory
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // the process has ended
		}
		// The second field is a name in parentheses, which may contain anything (proc(5)); state, parent, group
		// and session follow.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && ours(member{pid, fields[2], fields[3]}) {
			pids = append(pids, pid)
		}
	}
	return pids
}
