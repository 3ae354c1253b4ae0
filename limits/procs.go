//go:build linux

package limits

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// costFactor bounds the watcher's CPU time to a tenth of one processor: it waits ten times as
// long as a check takes.
const costFactor = 10

// descendants lists pid 1 of a container and the live processes below it. It needs CONFIG_PROC_CHILDREN, which
// all distributions set. It may miss a process that is forked meanwhile, until the next call.
func descendants(pid int) []int {
	list := []int{pid}
	for i := 0; i < len(list); i++ {
		tasks := "/proc/" + strconv.Itoa(list[i]) + "/task/"
		threads, err := os.ReadDir(tasks)
		if err != nil {
			continue // the process has ended
		}
		for _, t := range threads {
			children, err := os.ReadFile(tasks + t.Name() + "/children")
			if err != nil {
				continue
			}
			for field := range bytes.FieldsSeq(children) {
				if child, err := strconv.Atoi(string(field)); err == nil {
					list = append(list, child)
				}
			}
		}
	}
	return list
}

// cpuTimeOf returns the CPU time of the processes and of their reaped children: fields 14 to 17 of
// /proc/PID/stat, proc(5).
func cpuTimeOf(pids []int) time.Duration {
	var sum int64
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from field 3 on
		for i := 11; i < 15 && i < len(fields); i++ {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += n
		}
	}
	return time.Duration(sum) * tick
}

// memoryOf returns the resident and swapped memory of the processes. If counting shared pages for each process
// exceeds limit, it computes the exact value, which is expensive.
func memoryOf(pids []int, limit int64) int64 {
	sum := sumOf(pids, "status", "VmRSS:", "VmSwap:")
	if limit != 0 && sum > limit {
		sum = sumOf(pids, "smaps_rollup", "Pss:", "SwapPss:")
	}
	return sum
}

// sumOf adds up lines like "VmRSS:   123 kB" of a file of each process, in bytes.
func sumOf(pids []int, file string, names ...string) int64 {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
		if err != nil {
			continue // the process has ended
		}
		for line := range bytes.Lines(text) {
			for _, name := range names {
				if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
					n, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
					sum += n << 10
				}
			}
		}
	}
	return sum
}

// threadsOf counts the threads of the processes.
func threadsOf(pids []int) int64 {
	var n int64
	for _, pid := range pids {
		if threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task"); err == nil {
			n += int64(len(threads))
		}
	}
	return n
}
