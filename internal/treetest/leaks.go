//go:build linux

package treetest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/mount"
	"golang.org/x/sys/unix"
)

// Leaks counts now, and again when the test ends, objects that a test could leave behind, and
// fails the test for each that exists only at the end:
//
//   - open descriptors of this process;
//   - its children and their orphans: this process becomes a subreaper
//     (prctl(2), PR_SET_CHILD_SUBREAPER);
//   - mounts and loop devices that involve one of the places;
//   - btrfs subvolumes inside the places;
//   - cgroups of snapfs whose names hold the pid of this process.
//
// The places are the directories given, and those that [Dir] makes. With SNAPFS_ALONE=1, which
// means that nothing else runs on the machine, all mounts, loop devices and cgroups count.
// Objects that disappear within ten seconds of the end are no leak. Call Leaks after making
// the places, and not in a parallel test.
func Leaks(t testing.TB, places ...string) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	places = append(places, filepath.Join(scratch, mark()), filepath.Join(memory, mark()))
	c := counter{places: places, alone: os.Getenv("SNAPFS_ALONE") == "1"}
	before := c.count()
	t.Cleanup(func() {
		t.Helper()
		for _, leak := range c.wait(before, 10*time.Second) {
			t.Errorf("left behind: %s", leak)
		}
	})
}

type counter struct {
	places []string
	alone  bool
}

// wait returns the objects (mounts, processes and so on) that exist now and are not in before: those that a
// test has left behind. It waits up to patience for them to disappear.
func (c counter) wait(before []string, patience time.Duration) []string {
	for start, try := time.Now(), 0; ; time.Sleep(20 * time.Millisecond) {
		if try++; try%10 == 2 { // a collection closes the descriptor of a process that nobody waits for
			runtime.GC()
		}
		left := slices.DeleteFunc(c.count(), func(s string) bool { return slices.Contains(before, s) })
		if len(left) == 0 || time.Since(start) > patience {
			return left
		}
	}
}

func (c counter) count() []string {
	return slices.Concat(descriptors(), children(), c.mounts(), c.loops(), c.subvolumes(), c.cgroups())
}

// ours reports whether one of the texts, such as a line of mountinfo, contains the path of a directory that
// the test made or named to [Leaks].
func (c counter) ours(texts ...string) bool {
	if c.alone {
		return true
	}
	for _, text := range texts {
		for _, place := range c.places {
			if strings.Contains(text, place) {
				return true
			}
		}
	}
	return false
}

func descriptors() []string {
	var list []string
	links, _ := os.ReadDir("/proc/self/fd")
	for _, l := range links {
		target, err := os.Readlink("/proc/self/fd/" + l.Name())
		switch {
		case err != nil: // the one that listed them
		case target == "anon_inode:[eventpoll]", target == "anon_inode:[eventfd]": // Go's own
		default:
			list = append(list, "descriptor "+l.Name()+" of "+target)
		}
	}
	return list
}

// Started returns the pids of the processes that this process has started and not yet waited for, and of
// orphans that the kernel made its children.
func Started(t testing.TB) (all []int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for pid := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	return all
}

// children returns a line of text for each living descendant of this process. It reaps dead orphans that the
// kernel made children of this process.
func children() []string {
	// A process without a child has no descendant, since its orphans become its children. Otherwise the
	// search reads the files of every process of the machine.
	if unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) == unix.ECHILD {
		return nil
	}
	parents := map[int]int{}
	names := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if err != nil || len(fields) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		parents[pid], _ = strconv.Atoi(fields[1])
		names[pid] = string(stat[:bytes.LastIndexByte(stat, ')')+1])
		if fields[0] == "Z" && parents[pid] == os.Getpid() {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			delete(parents, pid)
		}
	}
	var list []string
	for pid := range parents {
		for up := parents[pid]; up > 0; up = parents[up] {
			if up == os.Getpid() {
				list = append(list, "process "+names[pid])
				break
			}
		}
	}
	return list
}

func (c counter) mounts() []string {
	var list []string
	mounts, _ := mount.List()
	for _, m := range mounts {
		if c.ours(m.Path, m.Root, m.Source, m.SuperOptions) {
			list = append(list, "mount "+strconv.Itoa(m.ID)+" of "+m.Type+" at "+m.Path)
		}
	}
	return list
}

func (c counter) loops() []string {
	var list []string
	devices, _ := filepath.Glob("/sys/block/loop*") // a longer pattern makes Glob list the directory of each device
	for _, device := range devices {
		image, err := os.ReadFile(device + "/loop/backing_file")
		if err == nil && c.ours(string(image)) {
			list = append(list, "loop device "+filepath.Base(device)+" of "+strings.TrimSpace(string(image)))
		}
	}
	return list
}

// subvolumes returns the btrfs subvolumes in the directories that [Leaks] watches: directories with the inode
// number 256.
func (c counter) subvolumes() []string {
	var list []string
	for _, place := range c.places {
		eachDir(place, func(path string) {
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil && st.Ino == 256 {
				if f, err := mount.FilesystemOf(path); err == nil && f.Type == "btrfs" {
					list = append(list, "subvolume "+path)
				}
			}
		})
	}
	return list
}

func (c counter) cgroups() []string {
	var list []string
	eachDir("/sys/fs/cgroup", func(path string) {
		name := filepath.Base(path)
		if c.alone || strings.Contains(name, "snapfs") && strings.Contains(name, strconv.Itoa(os.Getpid())) {
			list = append(list, "control group "+path)
		}
	})
	return list
}

// eachDir calls f for root and each readable directory in it, to search for leaked objects. Some calls run in
// parallel.
func eachDir(root string, f func(path string)) {
	list, err := os.ReadDir(root)
	if err != nil {
		return
	}
	f(root)
	for _, d := range list {
		if d.IsDir() {
			eachDir(filepath.Join(root, d.Name()), f)
		}
	}
}
