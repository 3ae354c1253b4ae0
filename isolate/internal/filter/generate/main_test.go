//go:build linux

package main

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The committed tables match the pinned profile.
func TestTablesAreUpToDate(t *testing.T) {
	for goarch := range abis {
		want, err := Source(goarch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../program_linux_" + goarch + ".go")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: run go generate in isolate/internal/filter", goarch)
		}
	}
}

// The filter decides as the profile says, independent of the shape of the search tree.
func TestFilterDecides(t *testing.T) {
	const (
		x86, i386 = 0xc000003e, 0x40000003
		arm64     = 0xc00000b7
	)
	for _, c := range []struct {
		goarch string
		arch   uint32
		number uint32
		args   [2]uint64
		want   int
	}{
		{"amd64", x86, unix.SYS_READ, [2]uint64{}, int(allow)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TCGETS}, int(allow)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSTI}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSTI | 7<<32}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCLINUX}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCEXCL}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSETD}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCVHANGUP}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCCONS}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, tiocsLockTermios}, int(deny)},
		{"amd64", x86, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSCTTY}, int(allow)},
		{"amd64", i386, 54, [2]uint64{0, unix.TIOCEXCL}, int(deny)}, // ioctl
		{"amd64", x86, unix.SYS_CLONE, [2]uint64{unix.CLONE_VM}, int(allow)},
		{"amd64", x86, unix.SYS_CLONE, [2]uint64{unix.CLONE_NEWUSER}, int(deny)},
		{"amd64", x86, unix.SYS_CLONE, [2]uint64{unix.CLONE_NEWNS | unix.CLONE_VM}, int(deny)},
		{"amd64", x86, unix.SYS_CLONE3, [2]uint64{}, int(unknown)},
		{"amd64", x86, unix.SYS_UNSHARE, [2]uint64{}, int(deny)},
		{"amd64", x86, unix.SYS_KEYCTL, [2]uint64{}, int(deny)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_INET}, int(allow)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_VSOCK}, int(deny)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_VSOCK | 1<<40}, int(deny)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_ALG}, int(deny)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_PACKET}, int(deny)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_XDP}, int(deny)},
		{"amd64", x86, unix.SYS_SOCKET, [2]uint64{unix.AF_NETLINK}, int(allow)},
		{"amd64", i386, 359, [2]uint64{unix.AF_INET}, int(allow)}, // socket
		{"amd64", i386, 359, [2]uint64{unix.AF_VSOCK}, int(deny)},
		{"amd64", i386, 102, [2]uint64{1}, int(deny)}, // socketcall, as socket
		{"amd64", i386, 102, [2]uint64{1 | 1<<32}, int(deny)},
		{"amd64", i386, 102, [2]uint64{3}, int(allow)}, // as connect
		{"arm64", arm64, 198, [2]uint64{unix.AF_VSOCK}, int(deny)},
		{"arm64", arm64, 198, [2]uint64{unix.AF_INET}, int(allow)},
		{"amd64", x86, unix.SYS_PERSONALITY, [2]uint64{8}, int(allow)},
		{"amd64", x86, unix.SYS_PERSONALITY, [2]uint64{9}, int(deny)},
		{"amd64", x86, 100_000, [2]uint64{}, int(unknown)},
		{"amd64", x86, 0x40000000, [2]uint64{}, int(unknown)},
		{"amd64", i386, 3, [2]uint64{}, int(allow)},   // read
		{"amd64", i386, 21, [2]uint64{}, int(deny)},   // mount
		{"amd64", arm64, 63, [2]uint64{}, int(deny)},  // not of this machine
		{"arm64", arm64, 63, [2]uint64{}, int(allow)}, // read
		{"arm64", arm64, 40, [2]uint64{}, int(deny)},  // mount
	} {
		if got := play(t, c.goarch, c.arch, c.number, c.args); got != c.want {
			t.Errorf("%s: call %d of %#x with %#x: %#x, want %#x", c.goarch, c.number, c.arch, c.args, got, c.want)
		}
	}
}

// play runs the filter on a struct seccomp_data. The interpreter reads network byte order where the kernel
// reads the machine's, so play encodes the data that way.
func play(t *testing.T, goarch string, arch, number uint32, args [2]uint64) int {
	t.Helper()
	raw, err := assemble(goarch)
	if err != nil {
		t.Fatal(err)
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("not a program")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	put := func(at int, v uint32) {
		data[at], data[at+1], data[at+2], data[at+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	put(0, number)
	put(4, arch)
	for i, a := range args {
		put(16+8*i, uint32(a)) // the low half first, as on both machines
		put(20+8*i, uint32(a>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
