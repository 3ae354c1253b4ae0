package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// leader starts a program as the leader of a group, which gets SIGKILL should this thread end.
func leader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// mortal starts a program that gets SIGKILL should this thread end.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// members lists the processes that are ours and have not ended.
func members(ours func(member) bool) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The second field is a name in parentheses, which may hold anything
		// (proc(5)); state, parent, group and session follow.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && ours(member{pid, fields[2], fields[3]}) {
			pids = append(pids, pid)
		}
	}
	return pids
}
