//go:build linux

package isolate

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
	"github.com/snapfs/snapfs/isolate/mounts"
)

// A builder assembles the image of a container: the list of every system call that its pid 1 makes, called
// steps, from the first instruction to the loop in which it waits for requests. Pid 1 is a fork of this
// process that executes the image.
type builder struct {
	*mounts.Planner
	spec      Spec
	host      hostFacts
	p1        pid1
	thread    int // the supervisor's thread; the kernel kills pid 1 when it ends
	optionals []optionalStep
	edge      launch.Cell  // descriptor of the TUN device
	rlimits   []Rlimit     // for commands started from now on
	nproc     *unix.Rlimit // the supervisor's own limit, once pid 1 has another one
}

// An optionalStep is a system call of pid 1 for a protection whose failure [Spec.BestEffort] tolerates.
// result is where pid 1 stores its error, part the name of the protection.
type optionalStep struct {
	result launch.Cell
	part   string
}

// optional lets the system call s of pid 1 fail under [Spec.BestEffort], and notes that s is part of the
// protection called what, so that the failure is reported to the user.
func (b *builder) optional(what string, s launch.Step) {
	if !b.spec.BestEffort {
		return
	}
	c := s.IgnoreErrors().Result()
	b.optionals = append(b.optionals, optionalStep{c, what})
}

// maps adds the system calls by which pid 1 maps the only user and group of its new user namespace. A process
// may map its own ids without any privilege, once it has given up setgroups(2) (user_namespaces(7)).
func (b *builder) maps() {
	b.Stage = "mapping the user"
	uid, gid := strconv.Itoa(b.host.uid), strconv.Itoa(b.host.gid)
	b.writeFile("/proc/self/setgroups", "deny")
	b.writeFile("/proc/self/uid_map", uid+" "+uid+" 1")
	b.writeFile("/proc/self/gid_map", gid+" "+gid+" 1")
}

func (b *builder) writeFile(path, content string) {
	fd := b.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), b.Str(path), launch.Num(unix.O_WRONLY|unix.O_CLOEXEC)).Path(path).Result()
	b.Do(unix.SYS_WRITE, b.Of(fd), b.Str(content), launch.Num(len(content))).Path(path)
	b.Do(unix.SYS_CLOSE, b.Of(fd))
}

// enterCgroups adds the system calls that move pid 1 into the cgroups of version 1, which clone3 cannot place
// it in. Pid 1 writes its only thread to tasks: to move a whole process through cgroup.procs, the kernel
// first blocks every fork and exit of the machine (cgroup_threadgroup_rwsem in kernel/cgroup/cgroup.c), for
// 10 ms.
func (b *builder) enterCgroups() {
	b.Stage = "entering the cgroup"
	for _, dir := range b.host.cgroups {
		fd := b.Do(unix.SYS_OPENAT, launch.Num(dir), b.Str("tasks"), launch.Num(unix.O_WRONLY|unix.O_CLOEXEC)).Result()
		b.optional(partCgroup, b.Do(unix.SYS_WRITE, b.Of(fd), b.Str("0"), launch.Num(1)))
		b.Do(unix.SYS_CLOSE, b.Of(fd))
	}
}

// becomeRoot adds the system calls by which pid 1, still the host's root, which the new user namespace does
// not map, becomes root of that namespace.
func (b *builder) becomeRoot() {
	b.Stage = "becoming root of the sandbox"
	b.Do(unix.SYS_SETGROUPS, launch.Num(0), launch.Num(0))
	b.Do(unix.SYS_SETRESGID, launch.Num(0), launch.Num(0), launch.Num(0))
	b.Do(unix.SYS_SETRESUID, launch.Num(0), launch.Num(0), launch.Num(0))
}

// seal adds the system calls that make pid 1 unreadable to all but the host's root, because its memory is a
// copy of the supervisor's, and that tie its life to the supervisor's thread. A change of user undoes both.
func (b *builder) seal() {
	b.Stage = "protecting pid 1"
	b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_DUMPABLE), launch.Num(0))
	b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_PDEATHSIG), launch.Num(unix.SIGKILL))
}

// forget adds the system calls by which pid 1 blanks its copy of the supervisor's command line, which every
// process in the container could read in /proc/1/cmdline, and takes a name of its own.
func (b *builder) forget() {
	b.Stage = "naming pid 1"
	b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_NAME), b.Str("snapfs-init"))
	if start, size := launch.CommandLine(); size > 0 {
		zero := b.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), b.Str("/dev/zero"), launch.Num(unix.O_RDONLY|unix.O_CLOEXEC)).Result()
		b.Do(unix.SYS_READ, b.Of(zero), launch.Num(start), launch.Num(size)).IgnoreErrors()
		if size >= 16 {
			b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_GET_NAME), launch.Num(start)).IgnoreErrors()
		}
		b.Do(unix.SYS_CLOSE, b.Of(zero))
	}
}

// loopback adds the system calls by which pid 1 brings up lo, the network interface of the container's own
// loopback addresses.
func (b *builder) loopback() {
	b.Stage = "bringing up the loopback interface"
	ifreq := make([]byte, 40)
	copy(ifreq, "lo")
	ifreq[unix.IFNAMSIZ] = unix.IFF_UP
	s := b.Do(unix.SYS_SOCKET, launch.Num(unix.AF_INET), launch.Num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), launch.Num(0)).Result()
	b.Do(unix.SYS_IOCTL, b.Of(s), launch.Num(unix.SIOCSIFFLAGS), b.Bytes(ifreq...))
	b.Do(unix.SYS_CLOSE, b.Of(s))
}

// closeAll adds the system calls by which pid 1 closes every descriptor that it has inherited, except those
// in keep, and opens the container's /dev/null as 0, 1 and 2.
func (b *builder) closeAll(keep []int) {
	b.Stage = "closing descriptors"
	slices.Sort(keep)
	from := 0
	for _, fd := range keep {
		if fd > from {
			b.Do(unix.SYS_CLOSE_RANGE, launch.Num(from), launch.Num(fd-1), launch.Num(0))
		}
		from = fd + 1
	}
	b.Do(unix.SYS_CLOSE_RANGE, launch.Num(from), launch.Num(^uint32(0)), launch.Num(0))
	b.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), b.Str("/dev/null"), launch.Num(unix.O_RDWR))
	b.Do(unix.SYS_DUP3, launch.Num(0), launch.Num(1), launch.Num(0))
	b.Do(unix.SYS_DUP3, launch.Num(0), launch.Num(2), launch.Num(0))
}
