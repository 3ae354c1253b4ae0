//go:build linux

package limits

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// thrift is how much of one processor a watcher may take at most: a tenth.
const thrift = 10

// family lists pid 1 of a box and the processes beneath it, all that live. It
// needs CONFIG_PROC_CHILDREN, as all distributions have. What forks meanwhile may
// be missed, until the next time.
func family(pid int) []int {
	list := []int{pid}
	for i := 0; i < len(list); i++ {
		tasks := "/proc/" + strconv.Itoa(list[i]) + "/task/"
		threads, err := os.ReadDir(tasks)
		if err != nil {
			continue // it has ended
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

// familyTime is what the processes have computed, and those that they have waited
// for: fields 14 to 17 of /proc/PID/stat, proc(5).
func familyTime(pids []int) time.Duration {
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

// familyMemory is the memory of the processes and what of them is swapped out.
// What they share counts once for each of them where that is still within limit:
// the exact answer is expensive.
func familyMemory(pids []int, limit int64) int64 {
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
			continue // it has ended
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
