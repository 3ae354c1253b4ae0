package agenthook

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/proc"
)

// agentProcess returns the process of the coding agent, which started this process as a hook: the nearest
// ancestor that is not a shell, env or timeout. The sandbox's view lives as long as that process.
func agentProcess() (proc.Process, error) {
	pid := os.Getppid()
	for {
		name, parent, err := describe(pid)
		if err != nil {
			return proc.Process{}, err
		}
		switch name {
		case "sh", "bash", "dash", "zsh", "ksh", "fish", "env", "timeout":
			if parent > 1 {
				pid = parent
				continue
			}
		}
		return proc.Identify(pid)
	}
}

// describe returns the name of the process pid and the pid of its parent, to find the coding agent among the
// ancestors of this process.
func describe(pid int) (name string, parent int, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	// "PID (NAME) STATE PARENT ...", see proc_pid_stat(5); the name may hold anything.
	begin, end := strings.IndexByte(string(data), '('), strings.LastIndexByte(string(data), ')')
	if begin < 0 || end < begin {
		return "", 0, fmt.Errorf("reading the state of process %d: %q", pid, data)
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 2 {
		return "", 0, fmt.Errorf("reading the state of process %d: %q", pid, data)
	}
	parent, err = strconv.Atoi(fields[1])
	return string(data[begin+1 : end]), parent, err
}
