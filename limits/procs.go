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

// memfdsOf returns the bytes in the files in memory that the processes have open (memfd_create(2), memfd_secret(2)),
// each counted once. The kernel's Pss counts only the mapped part of them. A file that no process has open, because
// it is on its way through a socket, is not counted.
func memfdsOf(pids []int) int64 {
	seen := map[uint64]bool{}
	var sum int64
	for _, pid := range pids {
		for _, table := range fileTables(pid) {
			sum += memfdsIn("/proc/"+strconv.Itoa(table)+"/fd/", seen)
		}
	}
	return sum
}

// memfdFile, secretFile and sysvFile begin the names that /proc shows for files in memory, of memfd_create(2),
// memfd_secret(2) and shmget(2).
const (
	memfdFile  = "/memfd:"
	secretFile = "/secretmem"
	sysvFile   = "/SYSV"
)

// memfdsIn is [memfdsOf] for the open files that the directory dir of /proc lists, except for those whose inode
// numbers are in seen. It adds the others to seen.
func memfdsIn(dir string, seen map[uint64]bool) (sum int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0 // the process has ended, or runs a program that this user may not read
	}
	for _, e := range entries {
		link, err := os.Readlink(dir + e.Name())
		secret := strings.HasPrefix(link, secretFile)
		if err != nil || !secret && !strings.HasPrefix(link, memfdFile) {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(dir+e.Name(), &st) != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		if secret {
			sum += st.Size // the kernel counts no blocks of it
		} else {
			sum += st.Blocks * 512
		}
	}
	return sum
}

// threadsIn lists the threads of the process pid. The first one can end before the others (pthread_exit(3)).
// The files of /proc/PID then have no memory and no open files of the process; those of /proc/TID, for the
// thread TID, have them.
func threadsIn(pid int) (list []int) {
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil // the process has ended
	}
	for _, t := range threads {
		if n, err := strconv.Atoi(t.Name()); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// maxCompared is with how many of the tables of open files found so far fileTables compares that of a thread.
// It bounds the work for a process with a great many tables, of which later ones may then be listed twice.
const maxCompared = 16

// fileTables lists threads of the process pid that have all its tables of open files among them. There is
// one table, unless a thread was made without CLONE_FILES (clone(2)) or the first thread has ended.
func fileTables(pid int) (list []int) {
	const kcmpFiles = 2 // KCMP_FILES of linux/kcmp.h
	for _, t := range threadsIn(pid) {
		known := slices.ContainsFunc(list[:min(len(list), maxCompared)], func(other int) bool {
			differ, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(other), uintptr(t), kcmpFiles, 0, 0, 0)
			return errno == 0 && differ == 0
		})
		if !known {
			list = append(list, t)
		}
	}
	return list
}

// mappedOf returns how many bytes of the processes' memory, shared pages divided among their users (Pss), are
// pages of files on these devices, of memfd_create(2), of memfd_secret(2) or of shmget(2). It reads every mapping of
// each process, which costs up to a millisecond.
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
				in = n == 2 && slices.Contains(devices, unix.Mkdev(major, minor)) ||
					len(fields) > 5 && slices.ContainsFunc([]string{memfdFile, secretFile, sysvFile}, func(name string) bool {
						return bytes.HasPrefix(fields[5], []byte(name))
					})
			case in && len(fields) == 3 && string(fields[0]) == "Pss:":
				kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
				sum += kib << 10
			}
		}
	}
	return sum
}

// memoryOf returns the memory of the processes, in bytes: resident, swapped, and for their page tables. It
// counts shared pages for each process; only if that exceeds limit, it computes the exact value, which is
// expensive.
func memoryOf(pids []int, limit int64) int64 {
	var sum int64
	for _, pid := range pids {
		sum += residentOf(pid)
	}
	if limit == 0 || sum <= limit {
		return sum
	}
	sum = 0
	for _, pid := range pids {
		if n, ok := linesOf(pid, "smaps_rollup", "Pss:", "SwapPss:"); ok {
			tables, _ := linesOf(pid, "status", "VmPTE:")
			sum += n + tables
		} else {
			sum += residentOf(pid) // a program that this user may not read
		}
	}
	return sum
}

// residentOf returns the memory of the process pid as [memoryOf] counts it, with shared pages in full.
func residentOf(pid int) int64 {
	n, _ := linesOf(pid, "status", "VmRSS:", "VmSwap:", "VmPTE:")
	return n
}

// linesOf adds up the lines called names, like "VmRSS: 123 kB", of a file in /proc of the process pid, and
// returns bytes. If the first thread of the process has ended, it reads the file of another one. ok is false
// if there are no such lines.
func linesOf(pid int, file string, names ...string) (sum int64, ok bool) {
	if sum, ok = linesIn(pid, file, names); ok {
		return sum, ok
	}
	for _, t := range threadsIn(pid) {
		if t == pid {
			continue
		}
		if sum, ok = linesIn(t, file, names); ok {
			return sum, ok
		}
	}
	return 0, false
}

// linesIn is [linesOf] for the thread tid alone: it adds up the lines called names of file, in bytes.
func linesIn(tid int, file string, names []string) (sum int64, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/" + file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		for _, name := range names {
			if rest, found := bytes.CutPrefix(line, []byte(name)); found {
				n, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
				sum, ok = sum+n<<10, true
			}
		}
	}
	return sum, ok
}

// threadsOf counts the threads of the processes pids, for the limit of processes, which counts threads as the
// kernel does.
func threadsOf(pids []int) int64 {
	var n int64
	for _, pid := range pids {
		n += int64(len(threadsIn(pid)))
	}
	return n
}
