package promote_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// flaglessEnv makes this program's kernel refuse the flags of renameat2(2), as it does for
// ZFS before 2.2.
const flaglessEnv = "SNAPFS_TEST_FLAGLESS"

// refuseFlags makes the kernel return EINVAL for a rename with flags, in every thread of
// this process and its children.
func refuseFlags() error {
	const (
		number, flags = 0, 16 + 8*4 // struct seccomp_data
		allow, refuse = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
	)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equals := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	list := []unix.SockFilter{
		load(number), equals(unix.SYS_RENAMEAT2, 0, 2),
		load(flags), equals(0, 0, 1), answer(allow), answer(refuse),
	}
	program := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(list)
	if errno != 0 {
		return errno
	}
	if err := unix.Renameat2(-1, "", -1, "", unix.RENAME_EXCHANGE); err != unix.EINVAL {
		return fmt.Errorf("a rename with flags answers %w", err)
	}
	return nil
}

// long reports whether a test has the large budget of make test-long, in the process of
// TestWithoutFlagsOfRename too, which has -test.short always.
func long(t *testing.T) bool {
	t.Helper()
	return treetest.Long(t) || os.Getenv(flaglessEnv) != "" && os.Getenv(treetest.LongEnv) != ""
}

// TestWithoutFlagsOfRename runs the tests of promotion, undo and kills at some system calls
// without rename flags: in make test on ext4 alone and at fewer calls.
func TestWithoutFlagsOfRename(t *testing.T) {
	treetest.OncePerRace(t)
	treetest.NeedRoot(t)
	skip := "KilledAtEverySystemCall"
	if treetest.Long(t) {
		skip = ""
	}
	if os.Getenv(flaglessEnv) != "" {
		t.Fatal("it would go on for ever")
	}
	cmd := exec.Command("/proc/self/exe", "-test.short", "-test.v", "-test.parallel="+flag.Lookup("test.parallel").Value.String(), "-test.run", flaglessTests, "-test.skip", skip)
	cmd.Env = append(os.Environ(), flaglessEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const flaglessTests = "^(TestPromotion|TestUndo|TestRecovery|TestFlagless|TestAfterKill|TestEveryStep|TestRecoverLeaves|TestAChangeAt|TestAWriter|TestApplyMakes|TestATargetThatSpans|TestAHardLink)"

// TestFlaglessLosesNothing: another program's file stays if it takes a name or exchanges a
// file between two checks.
func TestFlaglessLosesNothing(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Dir(t)
	before := treetest.Script{file("mod", 1, 10), file("gone", 2, 10), do(treetest.Mkdir, "dir", ""), file("dir/in", 3, 10)}
	after := treetest.Script{
		do(treetest.Unlink, "mod", ""), file("mod", 4, 20), do(treetest.Unlink, "gone", ""), file("new", 5, 10),
		do(treetest.RemoveRF, "dir", ""), file("dir", 6, 10),
	}
	w := newWorld(t, dir, before, after)
	must(t, os.WriteFile(w.real.Name()+"/new", []byte("theirs"), 0o644))
	_, err := w.apply(t, w.frozen())
	if err == nil {
		t.Error("it replaced somebody's file")
	}
	if got, err := os.ReadFile(w.real.Name() + "/new"); string(got) != "theirs" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	must(t, os.Remove(w.real.Name()+"/new"))
	_, err = w.apply(t, w.frozen())
	must(t, err)
	w.arrived(t)
	list, err := promote.Promotions(w.state())
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(list) > 0 {
		t.Error(list, err)
	}
}
