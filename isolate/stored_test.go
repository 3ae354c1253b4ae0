//go:build linux

package isolate

import (
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestStoredCountsWhatLiesInMemory of the container's own filesystems.
func TestStoredCountsWhatLiesInMemory(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		before, devices, err := container.Stored()
		if err != nil || before > 1<<20 || len(devices) == 0 {
			t.Fatal(before, devices, err)
		}
		sh(t, container, "for d in /tmp /dev/shm /run; do test ! -w $d || head -c 1M /dev/zero > $d/f; done")
		writable := int64(3)
		if spec.IDs != Same && sh(t, container, "test -w /run && echo y") == "" {
			writable = 2
		}
		after, _, err := container.Stored()
		if err != nil || after-before != writable*(1<<20+inodeMemory) {
			t.Errorf("%d bytes, %d before: %v", after, before, err)
		}
		must := container.Close(t.Context())
		if _, _, err := container.Stored(); must != nil || err == nil {
			t.Error("it counts in a container that has ended:", must, err)
		}
	})
}

// TestStoredCountsSystemVObjects that no process has mapped or open: shared memory, semaphores and messages.
func TestStoredCountsSystemVObjects(t *testing.T) {
	treetest.NeedProgram(t, "python3")
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		before, _, err := container.Stored()
		if err != nil {
			t.Fatal(err)
		}
		grown := func(least int64, kind string) {
			t.Helper()
			after, _, err := container.Stored()
			if err != nil || after-before < least || after-before > 2*least {
				t.Errorf("%s of %d bytes count %d bytes: %v", kind, least, after-before, err)
			}
			before = after
		}
		python := `import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def ok(n):
    if n == -1: raise OSError(ctypes.get_errno(), "")
    return n
`
		run := func(code string) { t.Helper(); sh(t, container, "python3 -c '"+python+code+"'") }
		run(`libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(ok(libc.shmget(0, 1 << 20, 0o1600)), None, 0)
ctypes.memset(at, 1, 1 << 20)`)
		grown(1<<20, "shared memory")
		run("for i in range(50): ok(libc.semget(0, 250, 0o1600))")
		grown(50*250*64, "semaphores")
		run(`q = ok(libc.msgget(0, 0o1600))
for i in range(8): ok(libc.msgsnd(q, (ctypes.c_long * 129)(1), 1024, 0))`)
		grown(8*1024, "messages")
	})
}
