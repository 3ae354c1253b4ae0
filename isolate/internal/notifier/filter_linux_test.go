package notifier

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// With Move, by which reads are recorded under every name, the filter denies what the supervisor cannot follow. Without
// it, such calls are only not observed.
func TestNothingEvadesARecordOfReadsByAnotherKindOfCall(t *testing.T) {
	const allow, notify, fail = 0x7fff0000, 0x7fc00000, 0x00050000
	const otherArch, open32 = 0x40000003, 5 // 32-bit programs of x86, and their open(2)
	for _, c := range []struct {
		name         string
		arch, number uint32
		acts         Act
		want         int
	}{
		{"a read", arch, unix.SYS_OPENAT, Read | Move, notify},
		{"a read of a 32-bit program", otherArch, open32, Read | Move, fail | int(unix.ENOSYS)},
		{"another root", arch, unix.SYS_CHROOT, Read | Move, fail | int(unix.EPERM)},
		{"another call", arch, unix.SYS_GETPID, Read | Move, allow},
		{"a 32-bit program that is only observed", otherArch, open32, Read, allow},
		{"another root where reads are only observed", arch, unix.SYS_CHROOT, Read, allow},
	} {
		code, _ := Program(c.acts)
		var list []bpf.Instruction
		for at := 0; at < len(code); at += 8 {
			raw := bpf.RawInstruction{Op: binary.NativeEndian.Uint16(code[at:]), Jt: code[at+2], Jf: code[at+3], K: binary.NativeEndian.Uint32(code[at+4:])}
			list = append(list, raw.Disassemble())
		}
		vm, err := bpf.NewVM(list)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 64) // struct seccomp_data; the interpreter reads the order of networks
		binary.BigEndian.PutUint32(data, c.number)
		binary.BigEndian.PutUint32(data[4:], c.arch)
		if got, err := vm.Run(data); err != nil || got != c.want {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got, err, c.want)
		}
	}
}
