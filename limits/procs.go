//go:build linux

package limits

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// costFactor bounds the CPU time of the watcher of limits to a tenth of one processor: it waits ten times as
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

// cpuTimeOf returns the CPU time of the processes pids and of their reaped children: fields 14 to 17 of
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

// memfdsOf returns the bytes in the files in memory that the processes have open (memfd_create(2)), each
// counted once. The kernel's Pss counts only the mapped part of them.
func memfdsOf(pids []int) int64 {
	seen := map[uint64]bool{}
	var sum int64
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the process has ended, or runs a program that this user may not read
		}
		for _, e := range entries {
			if link, err := os.Readlink(dir + e.Name()); err != nil || !strings.HasPrefix(link, "/memfd:") {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(dir+e.Name(), &st) == nil && !seen[st.Ino] {
				seen[st.Ino] = true
				sum += st.Blocks * 512
			}
		}
	}
	return sum
}

// mappedOf returns how many bytes of the processes' memory, shared pages divided among their users (Pss), are
// pages of files on these devices or of memfd_create(2). It reads every mapping of each process, which costs
// up to a millisecond.
func mappedOf(pids []int, devices []uint64) int64 {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps")
		if err != nil {
			continue // the process has ended
		}
		in := false
		for line := range bytes.Lines(text) {
			fields := bytes.Fields(line)
			switch {
			case len(fields) >= 5 && bytes.IndexByte(fields[3], ':') > 0: // 7f…-7f… rw-s 00000000 00:2f 17 /dev/shm/x
				var major, minor uint32
				n, _ := fmt.Sscanf(string(fields[3]), "%x:%x", &major, &minor)
				in = n == 2 && slices.Contains(devices, unix.Mkdev(major, minor)) || len(fields) > 5 && bytes.HasPrefix(fields[5], []byte("/memfd:"))
			case in && len(fields) == 3 && string(fields[0]) == "Pss:":
				kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
				sum += kib << 10
			}
		}
	}
	return sum
}

// memoryOf returns the resident and swapped memory of the processes, in bytes. It counts shared pages for
// each process; only if that exceeds limit, it computes the exact value, which is expensive.
func memoryOf(pids []int, limit int64) int64 {
	sum := sumOf(pids, "status", "VmRSS:", "VmSwap:")
	if limit != 0 && sum > limit {
		sum = sumOf(pids, "smaps_rollup", "Pss:", "SwapPss:")
	}
	return sum
}

// sumOf adds up the lines called names, like "VmRSS: 123 kB", of a file in /proc of each process, and returns
// bytes.
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

// threadsOf counts the threads of the processes pids, for the limit of processes, which counts threads as the
// kernel does.
func threadsOf(pids []int) int64 {
	var n int64
	for _, pid := range pids {
		if threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task"); err == nil {
			n += int64(len(threads))
		}
	}
	return n
}
