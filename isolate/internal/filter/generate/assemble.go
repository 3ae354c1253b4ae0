//go:build linux

package main

import (
	"fmt"
	"slices"

	bpf "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	moby "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	netbpf "golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// capabilities are the capabilities of root in a container. By them the seccomp profile, whose rules depend
// on capabilities, decides which system calls it allows.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SYS_CHROOT", "CAP_MKNOD", "CAP_AUDIT_WRITE", "CAP_SETFCAP",
}

// An abi is a system call interface of the kernel, such as that of 32-bit programs: its call numbers, and its
// name in the seccomp profile.
type abi struct {
	info *arch.Info
	name string
}

var abis = map[string][]abi{
	"amd64": {{arch.X86_64, "amd64"}, {arch.I386, "x86"}},
	"arm64": {{arch.AARCH64, "arm64"}, {arch.ARM, "arm"}},
}

const (
	allow   = bpf.ActionAllow
	deny    = bpf.ActionErrno | bpf.Action(unix.EPERM)
	unknown = bpf.ActionErrno | bpf.Action(unix.ENOSYS)

	offsetNumber = 0 // of struct seccomp_data
	offsetArch   = 4
)

// assemble returns the system call filter for the architecture goarch: a part for each of its ABIs, selected
// by the first instructions, and denial for every other ABI.
func assemble(goarch string) ([]netbpf.RawInstruction, error) {
	all := []netbpf.Instruction{netbpf.LoadAbsolute{Off: offsetArch, Size: 4}}
	for _, a := range abis[goarch] {
		part, err := a.part()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		all = append(all,
			netbpf.JumpIf{Cond: netbpf.JumpEqual, Val: uint32(a.info.ID), SkipTrue: 1},
			netbpf.Jump{Skip: uint32(len(part))})
		all = append(all, part...)
	}
	all = append(all, netbpf.RetConstant{Val: uint32(deny)})
	return netbpf.Assemble(all)
}

// A rule is the filter's decision for one system call. Without conditions it is action; with conditions, the
// call is allowed if one of them holds and denied otherwise. A call whose argument arg has one of the values
// never in its low half is always denied.
type rule struct {
	action bpf.Action
	when   []bpf.ArgumentConditions
	arg    uint32
	never  []uint32
}

// part returns the filter instructions for the system calls of this ABI, as a search tree over the call
// numbers. A linear list would load slowly, because the kernel emulates a filter for every number to cache
// those that are always allowed.
func (a abi) part() ([]netbpf.Instruction, error) {
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	type span struct {
		from int
		rule rule
	}
	var spans []span
	for number, r := range rules {
		plain := len(r.when) == 0 && len(r.never) == 0
		if n := len(spans); n > 0 && plain {
			if last := spans[n-1].rule; last.action == r.action && len(last.when) == 0 && len(last.never) == 0 {
				continue
			}
		}
		spans = append(spans, span{number, r})
	}
	spans = append(spans, span{len(rules), rule{action: unknown}})

	p := bpf.NewProgram()
	var tree func([]span)
	tree = func(s []span) {
		if len(s) == 1 {
			s[0].rule.assemble(&p, uint32(s[0].from))
			return
		}
		mid := len(s) / 2
		right := p.NewLabel()
		p.JmpIfTrue(netbpf.JumpGreaterOrEqual, uint32(s[mid].from), right)
		tree(s[:mid])
		p.SetLabel(right)
		tree(s[mid:])
	}
	tree(spans)
	instructions, err := p.Assemble()
	return append([]netbpf.Instruction{netbpf.LoadAbsolute{Off: offsetNumber, Size: 4}}, instructions...), err
}

func (r rule) assemble(p *bpf.Program, number uint32) {
	no, yes := p.NewLabel(), p.NewLabel()
	if len(r.never) > 0 {
		p.LdLo(r.arg) // the kernel ignores the high half, so the filter must too
		for _, v := range r.never {
			p.JmpIfTrue(netbpf.JumpEqual, v, no)
		}
	}
	if len(r.when) == 0 {
		p.Ret(r.action)
		p.SetLabel(no)
		if len(r.never) > 0 {
			p.Ret(deny)
		}
		return
	}
	bpf.SyscallWithConditions{Num: number, Conditions: r.when}.Assemble(p, false, yes, no)
	p.SetLabel(yes)
	p.Ret(allow)
	p.SetLabel(no)
	p.Ret(deny)
}

// rules returns the decisions of the seccomp profile for this ABI, by system call number. Calls that the
// profile does not mention are denied; numbers above all known ones are not listed.
func (a abi) rules() ([]rule, error) {
	highest := 0
	for number := range a.info.SyscallNumbers {
		highest = max(highest, number)
	}
	rules := make([]rule, highest+1)
	for i := range rules {
		rules[i].action = deny
	}
	for _, entry := range moby.DefaultProfile().Syscalls {
		if !a.applies(entry) {
			continue
		}
		for _, name := range entry.Names {
			number, ok := a.info.SyscallNames[name]
			if !ok {
				continue // a call of another architecture
			}
			if err := rules[number].add(entry.LinuxSyscall); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	a.harden(rules)
	return rules, nil
}

// btrfsSnapCreateV2 and btrfsSubvolCreateV2 are ioctls that create btrfs subvolumes in quota groups of the
// caller's choice; the filter denies them. Anybody may pass an empty list, so that no quota limits the
// subvolume (fs/btrfs/ioctl.c, Linux 6.18). The older ioctls have no such list.
const (
	btrfsSnapCreateV2   = 0x50009417
	btrfsSubvolCreateV2 = 0x50009418
)

// terminalCalls are ioctls that the filter denies because they insert input into a terminal, or take it from
// its other users: lock it, change its line discipline, hang it up, lock its modes, or divert the console's
// output (ioctl_tty(2)). No shell, editor or multiplexer needs one of them. TIOCSCTTY is not among them,
// because each terminal's first process calls it; to steal a terminal by it takes root of the host.
var terminalCalls = []uint32{
	unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCEXCL, unix.TIOCSETD, unix.TIOCVHANGUP, unix.TIOCCONS, tiocsLockTermios,
}

// tiocsLockTermios is the number of the ioctl TIOCSLCKTRMIOS (lock a terminal's modes) of
// asm-generic/ioctls.h, which package unix lacks.
const tiocsLockTermios = 0x5457

// deniedFamilies are the address families of sockets that the filter denies: the hypervisor (AF_VSOCK), which
// no network namespace keeps away; the kernel's cryptography (AF_ALG), which the profile denies too; and whole
// packets (AF_PACKET, AF_XDP), whose rings of memory no control group counts (net/packet/af_packet.c, Linux
// 6.18): root of a sandbox could take all memory of the host with them.
var deniedFamilies = []uint32{unix.AF_VSOCK, unix.AF_ALG, unix.AF_PACKET, unix.AF_XDP}

// callOfSocket is the first argument by which socketcall(2), a system call of 32-bit programs, means socket(2).
// It passes the address family in memory, which a filter cannot read, so the filter denies it for every
// family. 32-bit programs have socket(2) itself since Linux 4.3.
const callOfSocket = 1

// harden changes rules, the filter's decisions by system call number, to deny those calls that the profile
// allows but a sandbox must not make.
func (a abi) harden(rules []rule) {
	ioctl := &rules[a.info.SyscallNames["ioctl"]]
	ioctl.arg, ioctl.never = 1, append([]uint32{btrfsSnapCreateV2, btrfsSubvolCreateV2}, terminalCalls...)
	rules[a.info.SyscallNames["socket"]] = rule{action: allow, arg: 0, never: deniedFamilies}
	if number, ok := a.info.SyscallNames["socketcall"]; ok {
		rules[number] = rule{action: allow, arg: 0, never: []uint32{callOfSocket}}
	}
}

func (r *rule) add(s specs.LinuxSyscall) error {
	switch {
	case s.Action == specs.ActErrno && s.ErrnoRet != nil && len(s.Args) == 0:
		r.action = bpf.ActionErrno | bpf.Action(*s.ErrnoRet)
		return nil
	case s.Action != specs.ActAllow:
		return fmt.Errorf("action %s with arguments", s.Action)
	case len(s.Args) == 0:
		*r = rule{action: allow}
		return nil
	case r.action == allow:
		return nil
	}
	var conditions bpf.ArgumentConditions
	for _, arg := range s.Args {
		c := bpf.Condition{Argument: uint32(arg.Index), Value: arg.Value}
		switch {
		case arg.Op == specs.OpEqualTo:
			c.Operation = bpf.Equal
		case arg.Op == specs.OpNotEqual:
			c.Operation = bpf.NotEqual
		case arg.Op == specs.OpLessThan:
			c.Operation = bpf.LessThan
		case arg.Op == specs.OpGreaterThan:
			c.Operation = bpf.GreaterThan
		case arg.Op == specs.OpMaskedEqual && arg.ValueTwo == 0:
			c.Operation = bpf.BitsNotSet
		default:
			return fmt.Errorf("operation %s", arg.Op)
		}
		conditions = append(conditions, c)
	}
	r.when = append(r.when, conditions)
	return nil
}

// applies reports whether the entry s of the seccomp profile applies to this ABI. Every kernel that can run a
// container is younger than the kernels that the profile's conditions name.
func (a abi) applies(s *moby.Syscall) bool {
	if f := s.Includes; f != nil {
		if len(f.Arches) > 0 && !slices.Contains(f.Arches, a.name) {
			return false
		}
		for _, c := range f.Caps {
			if !slices.Contains(capabilities, c) {
				return false
			}
		}
	}
	if f := s.Excludes; f != nil {
		if slices.Contains(f.Arches, a.name) || f.MinKernel != nil {
			return false
		}
		for _, c := range f.Caps {
			if slices.Contains(capabilities, c) {
				return false
			}
		}
	}
	return true
}
