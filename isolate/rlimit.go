package isolate

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// An Rlimit is one limit that the kernel keeps for each process and its children
// (getrlimit(2)). A process may lower both numbers, and raise Cur up to Max;
// nothing in a box can raise Max.
//
// Most of them bound each process for itself. RLIMIT_NPROC bounds the processes
// and threads of a user together. From Linux 5.14 on it counts those of each
// user namespace for itself (user_namespaces(7); ucounts), so that in a box it
// counts those of the box alone, to the one; before, all of the user's on the
// host. Pid 1 is one of the processes of the box's root, or under [Same] of the
// box's only user. Under [Own] each user inside has a count of its own, and an
// Exec as another user than root may come one above it, because it joins that
// user when it runs already. Exempt are the host's root under his own id, and who
// has CAP_SYS_RESOURCE or CAP_SYS_ADMIN over the host: nothing in a box of [Own]
// is either, and under [Same] root cannot ask for this limit.
type Rlimit struct {
	// Resource is which: an RLIMIT_* of golang.org/x/sys/unix.
	Resource int
	// Cur is in force; Max is how far a process may raise it. In the unit of the
	// resource; unix.RLIM_INFINITY is no limit.
	Cur, Max uint64
}

// rlimitNames is how getrlimit(2) calls them, by number.
var rlimitNames = [...]string{
	"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE",
	"MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
}

// String is "NOFILE 1024", or "NOFILE 1024 of 4096" where it may be raised.
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

// checkRlimits refuses what makes no sense on any host.
func checkRlimits(list []Rlimit) error {
	seen := map[int]bool{}
	for _, r := range list {
		switch {
		case r.Resource < 0 || r.Resource >= len(rlimitNames):
			return invalid("limit %d is none of the kernel's", r.Resource)
		case seen[r.Resource]:
			return invalid("limit %s is there twice", rlimitNames[r.Resource])
		case r.Cur > r.Max:
			return invalid("limit %s is above how far it may be raised", r)
		}
		seen[r.Resource] = true
	}
	return nil
}
