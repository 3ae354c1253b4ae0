package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// programs returns the pids of all processes of snapfs that this test has started, with what each
// runs: commands, supervisors, and servers. Orphans are adopted by this process.
func programs(built string) map[int]string {
	parents, runs := map[int]int{}, map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		parents[pid], _ = strconv.Atoi(fields[1])
		if exe, err := os.Readlink(dir + "/exe"); err == nil && strings.HasPrefix(exe, built+"/snapfs") && fields[0] != "Z" {
			line, _ := os.ReadFile(dir + "/cmdline")
			runs[pid] = strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	for pid := range runs {
		up := parents[pid]
		for up > 1 && up != os.Getpid() {
			up = parents[up]
		}
		if up != os.Getpid() {
			delete(runs, pid)
		}
	}
	return runs
}

// kill ends a process that [programs] has just listed.
func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
