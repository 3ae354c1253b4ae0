//go:build linux

package isolate

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostFacts are the ids of this process and the properties of the kernel and cgroups on which the system
// calls of a container's pid 1 depend. The supervisor collects them, because pid 1 can only execute a
// prepared list.
type hostFacts struct {
	uid, gid int
	landlock int   // ABI, 0 without
	cgroups  []int // descriptors of the v1 cgroups to enter
	birth    int   // descriptor of the v2 cgroup to create pid 1 in, or -1
}

// callerFacts collects what the fork of pid 1 depends on: the ids of this process, and the cgroups of spec in
// which pid 1 is to be.
func callerFacts(spec *Spec) hostFacts {
	h := hostFacts{uid: os.Geteuid(), gid: os.Getegid(), birth: -1}
	var st unix.Statfs_t
	for _, c := range spec.Cgroups {
		if unix.Fstatfs(int(c.Fd()), &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			h.birth = int(c.Fd())
		} else {
			h.cgroups = append(h.cgroups, int(c.Fd()))
		}
	}
	return h
}

// landlockABI returns the version of the kernel's Landlock (landlock(7)), by which a container's access to
// files and sockets is restricted; 0 if the kernel has none.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// commandLine returns the address and size of this program's arguments in memory, which the kernel stores
// consecutively, so that pid 1 can blank its copy of them. The strings of os.Args still point there, unless
// the program changed them.
func commandLine() (start uintptr, size int) {
	for i, a := range os.Args {
		at := uintptr(unsafe.Pointer(unsafe.StringData(a)))
		if i == 0 {
			start = at
		}
		if at != start+uintptr(size) {
			break
		}
		size += len(a) + 1
	}
	return start, size
}
