//go:build linux

// Package stopped keeps the processes of a container stopped that SIGSTOP has stopped, where no cgroup freezer does.
package stopped

import (
	"bytes"
	"os"
	"strconv"
)

// A Thread is the state of one thread in a container.
type Thread struct {
	PID   int  // its process, on the host
	State byte // the letter in /proc/PID/stat
}

// Threads lists the threads of all processes below the process pid, a container's pid 1, parents before
// children. It needs CONFIG_PROC_CHILDREN, which all distributions set.
func Threads(pid int) []Thread {
	var all []Thread
	queue := []int{pid}
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		tasks := "/proc/" + strconv.Itoa(parent) + "/task/"
		entries, err := os.ReadDir(tasks)
		if err != nil {
			continue // the process has ended
		}
		for _, e := range entries {
			if parent != pid {
				if state, ok := stateOf(tasks + e.Name() + "/stat"); ok {
					all = append(all, Thread{parent, state})
				}
			}
			list, err := os.ReadFile(tasks + e.Name() + "/children")
			if err != nil {
				continue
			}
			for field := range bytes.FieldsSeq(list) {
				if child, err := strconv.Atoi(string(field)); err == nil {
					queue = append(queue, child)
				}
			}
		}
	}
	return all
}

func stateOf(file string) (byte, bool) {
	stat, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || end+2 >= len(stat) {
		return 0, false
	}
	return stat[end+2], true
}
