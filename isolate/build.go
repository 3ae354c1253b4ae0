//go:build linux

package isolate

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// builder assembles the image of a container: every system call that its pid 1 makes, from the first
// instruction to its request loop.
type builder struct {
	*image
	spec        Spec
	host        hostFacts
	p1          pid1
	trees       []cell   // the detached mounts of spec.Mounts
	bases       [][]cell // for each mount, the Served bases of its overlay
	private     private
	premounts   []premount
	thread      int      // the supervisor's thread; the kernel kills pid 1 when it ends
	premountFDs int      // image offset at which the descriptors of premounts arrive
	userns      *os.File // the user namespace of pid 1, unless IDs is Same
	files       []bound
	optionals   []optionalStep
	edge        cell         // descriptor of the TUN device
	rlimits     []Rlimit     // for commands started from now on
	nproc       *unix.Rlimit // the supervisor's own limit, once pid 1 has another one

	shifts []shifted // trees whose ids a FUSE process maps

	rootCopy   *os.File   // see rootMount
	closeLater []*os.File // mounts and directories to close once the trees are complete
}

// optionalStep is a step whose failure [Spec.BestEffort] tolerates.
type optionalStep struct {
	result cell
	part   string
}

// optional makes s the step of a protection that a best effort can do without.
func (b *builder) optional(what string, s step) {
	if !b.spec.BestEffort {
		return
	}
	_, c := s.anyhow().into()
	b.optionals = append(b.optionals, optionalStep{c, what})
}

// maps adds the steps that map the only user and group of the new user namespace. A process may map its own ids
// without any privilege, once it has given up setgroups(2) (user_namespaces(7)).
func (b *builder) maps() {
	b.stage = "mapping the user"
	uid, gid := strconv.Itoa(b.host.uid), strconv.Itoa(b.host.gid)
	b.writeFile("/proc/self/setgroups", "deny")
	b.writeFile("/proc/self/uid_map", uid+" "+uid+" 1")
	b.writeFile("/proc/self/gid_map", gid+" "+gid+" 1")
}

func (b *builder) writeFile(path, content string) {
	fd := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path), num(unix.O_WRONLY|unix.O_CLOEXEC)).path(path).result()
	b.do(unix.SYS_WRITE, b.of(fd), b.str(content), num(len(content))).path(path)
	b.do(unix.SYS_CLOSE, b.of(fd))
}

// enterCgroups adds the steps that move pid 1 into the cgroups of version 1, which clone3 cannot place it in.
// Pid 1 writes its only thread to tasks: to move a whole process through cgroup.procs, the kernel first blocks
// every fork and exit of the machine (cgroup_threadgroup_rwsem in kernel/cgroup/cgroup.c), for 10 ms.
func (b *builder) enterCgroups() {
	b.stage = "entering the cgroup"
	for _, dir := range b.host.cgroups {
		fd := b.do(unix.SYS_OPENAT, num(dir), b.str("tasks"), num(unix.O_WRONLY|unix.O_CLOEXEC)).result()
		b.optional(partCgroup, b.do(unix.SYS_WRITE, b.of(fd), b.str("0"), num(1)))
		b.do(unix.SYS_CLOSE, b.of(fd))
	}
}

// becomeRoot adds the steps by which the process, still the host's root, which the new user namespace does not
// map, becomes root of that namespace.
func (b *builder) becomeRoot() {
	b.stage = "becoming root of the sandbox"
	b.do(unix.SYS_SETGROUPS, num(0), num(0))
	b.do(unix.SYS_SETRESGID, num(0), num(0), num(0))
	b.do(unix.SYS_SETRESUID, num(0), num(0), num(0))
}

// seal adds the steps that make the process unreadable to all but the host's root, because its memory is a copy
// of the supervisor's, and that tie its life to the supervisor's thread. A change of user undoes both.
func (b *builder) seal() {
	b.stage = "protecting pid 1"
	b.do(unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(0))
	b.do(unix.SYS_PRCTL, num(unix.PR_SET_PDEATHSIG), num(unix.SIGKILL))
}

// forget adds the steps that blank the copy of the supervisor's command line, which every process in the
// container could read in /proc/1/cmdline, and give pid 1 a name.
func (b *builder) forget() {
	b.stage = "naming pid 1"
	b.do(unix.SYS_PRCTL, num(unix.PR_SET_NAME), b.str("snapfs-init"))
	if start, size := commandLine(); size > 0 {
		zero := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str("/dev/zero"), num(unix.O_RDONLY|unix.O_CLOEXEC)).result()
		b.do(unix.SYS_READ, b.of(zero), num(start), num(size)).anyhow()
		if size >= 16 {
			b.do(unix.SYS_PRCTL, num(unix.PR_GET_NAME), num(start)).anyhow()
		}
		b.do(unix.SYS_CLOSE, b.of(zero))
	}
}

// loopback adds the steps that bring up the interface lo.
func (b *builder) loopback() {
	b.stage = "bringing up the loopback interface"
	ifreq := make([]byte, 40)
	copy(ifreq, "lo")
	ifreq[unix.IFNAMSIZ] = unix.IFF_UP
	s := b.do(unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), num(0)).result()
	b.do(unix.SYS_IOCTL, b.of(s), num(unix.SIOCSIFFLAGS), b.bytes(ifreq...))
	b.do(unix.SYS_CLOSE, b.of(s))
}

// closeAll adds the steps that close every descriptor except those in keep, and open the container's /dev/null
// as 0, 1 and 2.
func (b *builder) closeAll(keep []int) {
	b.stage = "closing descriptors"
	slices.Sort(keep)
	from := 0
	for _, fd := range keep {
		if fd > from {
			b.do(unix.SYS_CLOSE_RANGE, num(from), num(fd-1), num(0))
		}
		from = fd + 1
	}
	b.do(unix.SYS_CLOSE_RANGE, num(from), num(^uint32(0)), num(0))
	b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str("/dev/null"), num(unix.O_RDWR))
	b.do(unix.SYS_DUP3, num(0), num(1), num(0))
	b.do(unix.SYS_DUP3, num(0), num(2), num(0))
}
