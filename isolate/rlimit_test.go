package isolate

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// Every limit applies to all commands, also those started later, and none harms pid 1, not even one that would
// leave it no memory, descriptors or processor time.
func TestRlimitsApplyToCommandsAndNotToPid1(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.Rlimits = []Rlimit{
			{unix.RLIMIT_CPU, 1, 2},
			{unix.RLIMIT_FSIZE, 4096, 4096},
			{unix.RLIMIT_AS, 64 << 20, 64 << 20},
			{unix.RLIMIT_NOFILE, 12, 16},
			{unix.RLIMIT_CORE, 0, 0},
			{unix.RLIMIT_NPROC, 20, 20},
		}
		all := shell("grep -E 'cpu time|file size|address|open files|core file|processes' /proc/self/limits | tr -s ' ' | cut -d ' ' -f 2-6 | sed 's/ $//'")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		all.Stdout = w
		container, p, err := Start(t.Context(), spec, &all)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer container.Close(t.Context())
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		var buf [4096]byte
		n, _ := r.Read(buf[:])
		want := "cpu time 1 2 seconds\nfile size 4096 4096 bytes\ncore file size 0 0\nprocesses 20 20 processes\nopen files 12 16 files\naddress space 67108864 67108864 bytes\n"
		if got := string(buf[:n]); got != want {
			t.Errorf("the first command has %q\nwant %q", got, want)
		}
		if got := sh(t, container, "ulimit -n; ulimit -Hn; ulimit -n 16 && ulimit -n"); got != "12\n16\n16" {
			t.Errorf("a later one %q", got)
		}
		if _, st := output(t, container, shell("ulimit -Hn 17")); st.Code == 0 {
			t.Error("a command raised its hard limit")
		}
		if got := sh(t, container, "head -c 5000 /dev/zero >/tmp/large; stat -c %s /tmp/large"); !strings.HasSuffix(got, "4096") {
			t.Errorf("a large file: %s", got)
		}
		began := time.Now()
		if _, st := output(t, container, shell("while :; do :; done")); st.Signal != syscall.SIGXCPU {
			t.Errorf("a burner of processor time ended after %v with %+v", time.Since(began), st)
		}
		for range 100 { // pid 1 still works
			if got := sh(t, container, "echo still here"); got != "still here" {
				t.Fatal(got)
			}
		}
	})
}

// The limit is exact and ignores the user's processes outside: pid 1 and the shell are two of twelve.
func TestNPROCStopsAForkBombExactly(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 12, 12}}
		container := open(t, spec)
		out, st := output(t, container, shell("exec 3>&1 >/dev/null 2>&1; n=0; while :; do sleep 1000 3>&- & n=$((n+1)); echo $n >&3; done"))
		lines := strings.Fields(out)
		if st.Code == 0 || len(lines) == 0 || lines[len(lines)-1] != "10" {
			t.Errorf("ended with %+v after %v", st, lines)
		}
		if n := len(descendants(container.pid)); n != 10 {
			t.Errorf("%d processes are left", n)
		}
		if p, err := container.Exec(t.Context(), shell("read x")); err != nil { // the shell's place
			t.Fatal(err)
		} else if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := shell("exec sleep 1000")
		if _, err := container.Exec(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := container.Exec(t.Context(), c); !errors.Is(err, errs.ErrNoSpace) {
			t.Errorf("one more than the number: %v", err)
		}
		if err := container.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, container, "echo free again"); got != "free again" {
			t.Error(got)
		}
	})
}

// Under [Own] each user inside has a count of its own.
func TestNPROCCountsEachUserInside(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	spec := rootSpec(t)
	spec.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 6, 6}}
	container := open(t, spec)
	bomb := shell("n=0; while :; do sleep 1000 >/dev/null 2>&1 & n=$((n+1)); echo $n; done 2>/dev/null")
	for uid, want := range map[uint32]string{0: "4", 1234: "5"} { // pid 1 is root's
		bomb.UID = uid
		out, _ := output(t, container, bomb)
		if lines := strings.Fields(out); len(lines) == 0 || lines[len(lines)-1] != want {
			t.Errorf("user %d came to %v, want %s", uid, lines, want)
		}
	}
	bomb = shell("exec sleep 1000")
	bomb.UID = 1234
	for i, want := range []error{nil, nil, errs.ErrNoSpace} { // its six, and one above it
		if _, err := container.Exec(t.Context(), bomb); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
}

func TestRlimitAboveTheSupervisorsIsDenied(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
			t.Fatal(err)
		}
		spec.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 10, own.Max + 1}}
		_, _, err := Start(t.Context(), spec, nil)
		var e *errs.Error
		if !errors.Is(err, errs.ErrDenied) || !errors.As(err, &e) || len(e.Hints) != 1 ||
			!strings.HasSuffix(e.Error(), "the hard limit of this process is "+strconv.FormatUint(own.Max, 10)) {
			t.Errorf("%v, %+v", err, e)
		}
	})
}

// The kernel exempts root under its own id from this limit, so the limit is refused.
func TestNPROCIsRefusedForTheHostsRoot(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	spec := Spec{Mounts: []Mount{{Target: "/", Source: "/"}}, Network: NetworkNone, IDs: Same, Rlimits: []Rlimit{{unix.RLIMIT_NPROC, 5, 5}}}
	if _, _, err := Start(t.Context(), spec, nil); !errors.Is(err, errs.ErrNotSupported) {
		t.Error(err)
	}
}
