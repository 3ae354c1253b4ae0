package isolate

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/mounts"
)

// An Rlimit is a resource limit of each process and its children (getrlimit(2)). A process may
// lower both numbers and increase Cur up to Max; no process in a container can increase Max.
//
// RLIMIT_NPROC limits the processes and threads of a user together. From Linux 5.14 on it
// counts those of the container's user namespace (user_namespaces(7)), before all of the
// user's on the host. Pid 1 counts for the container's root, or under [Same] for its only
// user. Under [Own] each user inside has a count of its own, and an Exec as a user other than
// root may exceed the limit by one. The host's root and processes with CAP_SYS_RESOURCE or
// CAP_SYS_ADMIN over the host are exempt; with [Own] there is none in a container, and under
// [Same] root cannot set this limit.
type Rlimit struct {
	// Resource is an RLIMIT_* of golang.org/x/sys/unix.
	Resource int
	// Cur is the limit in force; a process may increase it up to Max. Both are in the unit of
	// the resource; unix.RLIM_INFINITY means no limit.
	Cur, Max uint64
}

// rlimitNames are the names of resource limits in getrlimit(2), by the number of the resource.
var rlimitNames = [...]string{
	"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE",
	"MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
}

// String returns the resource limit as text for the user, for example "NOFILE 1024", or "NOFILE 1024 of 4096"
// if Max is higher.
func (r Rlimit) String() string {
	name := strconv.Itoa(r.Resource)
	if r.Resource >= 0 && r.Resource < len(rlimitNames) {
		name = rlimitNames[r.Resource]
	}
	if r.Cur == r.Max {
		return name + " " + amount(r.Cur)
	}
	return name + " " + amount(r.Cur) + " of " + amount(r.Max)
}

func amount(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// checkRlimits returns an error if a limit in list is of an unknown resource, is given twice, or has a soft
// limit above the hard one.
func checkRlimits(list []Rlimit) error {
	seen := map[int]bool{}
	for _, r := range list {
		switch {
		case r.Resource < 0 || r.Resource >= len(rlimitNames):
			return mounts.Invalid("unknown resource limit %d", r.Resource)
		case seen[r.Resource]:
			return mounts.Invalid("limit %s is given twice", rlimitNames[r.Resource])
		case r.Cur > r.Max:
			return mounts.Invalid("limit %s: the soft limit exceeds the hard limit", r)
		}
		seen[r.Resource] = true
	}
	return nil
}
