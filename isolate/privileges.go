//go:build linux

package isolate

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/internal/filter"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A capability is one of the kernel's capabilities (capabilities(7)) that root has inside a container with
// [Own], over the container's own namespaces.
type capability struct {
	number int
	name   string
}

// keptCapabilities are the capabilities that root in a container has: the default list of the
// OCI runtimes.
var keptCapabilities = [...]capability{
	{unix.CAP_CHOWN, "chown"},
	{unix.CAP_DAC_OVERRIDE, "dac_override"},
	{unix.CAP_FOWNER, "fowner"},
	{unix.CAP_FSETID, "fsetid"},
	{unix.CAP_KILL, "kill"},
	{unix.CAP_SETGID, "setgid"},
	{unix.CAP_SETUID, "setuid"},
	{unix.CAP_SETPCAP, "setpcap"},
	{unix.CAP_NET_BIND_SERVICE, "net_bind_service"},
	{unix.CAP_NET_RAW, "net_raw"},
	{unix.CAP_SYS_CHROOT, "sys_chroot"},
	{unix.CAP_MKNOD, "mknod"},
	{unix.CAP_AUDIT_WRITE, "audit_write"},
	{unix.CAP_SETFCAP, "setfcap"},
}

const lastCapability = 63 // the kernel returns EINVAL above its own last

func (s Spec) capabilities() uint64 {
	var set uint64
	if s.IDs != Same {
		for _, c := range keptCapabilities {
			set |= 1 << c.number
		}
	}
	return set
}

// giveUp adds the system calls by which pid 1, and so every process in the container, drops all privileges
// that the Spec does not give. The system call filter is loaded last, because it forbids most calls of the
// other steps.
func (b *builder) giveUp() {
	set := b.spec.capabilities()
	b.Stage = "dropping capabilities"
	var drops []launch.Step
	for c := 0; c <= lastCapability; c++ {
		if set&(1<<c) == 0 {
			drops = append(drops, b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_CAPBSET_DROP), launch.Num(c)).Tolerate(unix.EINVAL))
		}
	}
	ambient := b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_CAP_AMBIENT), launch.Num(unix.PR_CAP_AMBIENT_CLEAR_ALL), launch.Num(0), launch.Num(0), launch.Num(0)).Tolerate(unix.EINVAL)
	for _, drop := range drops {
		drop.Next(ambient) // after EINVAL: the kernel has no higher capability
	}
	header := b.Words(unix.LINUX_CAPABILITY_VERSION_3)
	low, high := uint32(set), uint32(set>>32)
	at := b.Take(24)
	for i, v := range []uint32{low, low, 0, high, high, 0} { // effective, permitted, inheritable
		b.Put32(at+4*i, v)
	}
	b.Do(unix.SYS_CAPSET, header, launch.Num(b.Addr(at)))

	b.Stage = "forbidding new privileges"
	b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_NO_NEW_PRIVS), launch.Num(1), launch.Num(0), launch.Num(0), launch.Num(0))
	b.scope()
	b.spec.landlock().Restrict(b.Image)
	b.filterCalls()
	b.observeCalls()
}

// The kernel's Landlock scopes, which deny abstract sockets and signals, and the ABI that has them
// (linux/landlock.h).
const (
	scopeABI            = 6
	scopeAbstractSocket = 1
	scopeSignal         = 2
)

// scope adds the system calls that deny the container the host's abstract sockets, by Landlock, and, in
// addition to the pid namespace, signals to the host's processes. The whole container is one domain, because
// every process descends from pid 1.
func (b *builder) scope() {
	if b.host.landlock < scopeABI {
		return
	}
	b.Stage = "entering a Landlock domain"
	rules := b.Do(unix.SYS_LANDLOCK_CREATE_RULESET, b.Words(0, 0, scopeAbstractSocket|scopeSignal), launch.Num(24), launch.Num(0)).Result()
	b.Do(unix.SYS_LANDLOCK_RESTRICT_SELF, b.Of(rules), launch.Num(0))
	b.Do(unix.SYS_CLOSE, b.Of(rules))
}

// filterCalls adds the system call by which pid 1 loads the system call filter. The filter's table is part of
// the program's data, so pid 1, a fork of the program, has it at the same address.
func (b *builder) filterCalls() {
	b.Stage = "loading the system call filter"
	program := b.Take(16)
	b.Put32(program, uint32(len(filter.Program)))
	b.Put64(program+8, uint64(uintptr(unsafe.Pointer(&filter.Program[0]))))
	b.optional(partSeccomp,
		b.Do(unix.SYS_SECCOMP, launch.Num(unix.SECCOMP_SET_MODE_FILTER), launch.Num(0), launch.Num(b.Addr(program))))
}
