//go:build linux

package isolate

import (
	"os"

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
