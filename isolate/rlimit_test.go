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

	"github.com/snapfs/snapfs/internal/treetest"
)

// Every limit that a box may be given reaches its commands, those that are
// started later too, and none of them hurts pid 1, not even one that would leave
// it no memory, no descriptors and no processor time.
func TestLimitsReachEveryCommandAndSparePid1(t *testing.T) {
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
		box, p, err := Start(t.Context(), spec, &all)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer box.Close(t.Context())
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		var buf [4096]byte
		n, _ := r.Read(buf[:])
		want := "cpu time 1 2 seconds\nfile size 4096 4096 bytes\ncore file size 0 0\nprocesses 20 20 processes\nopen files 12 16 files\naddress space 67108864 67108864 bytes\n"
		if got := string(buf[:n]); got != want {
			t.Errorf("the first command has %q\nwant %q", got, want)
		}
		if got := sh(t, box, "ulimit -n; ulimit -Hn; ulimit -n 16 && ulimit -n"); got != "12\n16\n16" {
			t.Errorf("a later one %q", got)
		}
		if _, st := output(t, box, shell("ulimit -Hn 17")); st.Code == 0 {
			t.Error("a command raised its hard limit")
		}
		if got := sh(t, box, "head -c 5000 /dev/zero >/tmp/large; stat -c %s /tmp/large"); !strings.HasSuffix(got, "4096") {
			t.Errorf("a large file: %s", got)
		}
		began := time.Now()
		if _, st := output(t, box, shell("while :; do :; done")); st.Signal != syscall.SIGXCPU {
			t.Errorf("a burner of processor time ended after %v with %+v", time.Since(began), st)
		}
		for range 100 { // pid 1 itself goes on
			if got := sh(t, box, "echo still here"); got != "still here" {
				t.Fatal(got)
			}
		}
	})
}

// The number is exact, and counts neither what the same user runs outside nor
// anything else: pid 1 and the shell are two of twelve.
func TestAForkBombIsHeldAtExactlyTheNumber(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 12, 12}}
		box := open(t, spec)
		out, st := output(t, box, shell("exec 3>&1 >/dev/null 2>&1; n=0; while :; do sleep 1000 3>&- & n=$((n+1)); echo $n >&3; done"))
		lines := strings.Fields(out)
		if st.Code == 0 || len(lines) == 0 || lines[len(lines)-1] != "10" {
			t.Errorf("ended with %+v after %v", st, lines)
		}
		if n := len(descendants(box.pid)); n != 10 {
			t.Errorf("%d processes are left", n)
		}
		if p, err := box.Exec(t.Context(), shell("read x")); err != nil { // the shell's place
			t.Fatal(err)
		} else if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := shell("exec sleep 1000")
		if _, err := box.Exec(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := box.Exec(t.Context(), c); !errors.Is(err, ErrNoSpace) {
			t.Errorf("one more than the number: %v", err)
		}
		if err := box.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, box, "echo free again"); got != "free again" {
			t.Error(got)
		}
	})
}

// Each user inside has a count of its own, under root's box.
func TestTheNumberHoldsForEachUserInside(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	spec := rootSpec(t)
	spec.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 6, 6}}
	box := open(t, spec)
	bomb := shell("n=0; while :; do sleep 1000 >/dev/null 2>&1 & n=$((n+1)); echo $n; done 2>/dev/null")
	for uid, want := range map[uint32]string{0: "4", 1234: "5"} { // pid 1 is root's
		bomb.UID = uid
		out, _ := output(t, box, bomb)
		if lines := strings.Fields(out); len(lines) == 0 || lines[len(lines)-1] != want {
			t.Errorf("user %d came to %v, want %s", uid, lines, want)
		}
	}
	bomb = shell("exec sleep 1000")
	bomb.UID = 1234
	for i, want := range []error{nil, nil, ErrNoSpace} { // its six, and one above it
		if _, err := box.Exec(t.Context(), bomb); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
}

func TestLimitsOfALiveBoxCanBeRaised(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 2, 2}, {unix.RLIMIT_NOFILE, 10, 10}}
		box := open(t, spec)
		count := "(ulimit -n); (:) && echo forked"
		if out, st := output(t, box, shell(count)); st.Code == 0 {
			t.Errorf("two processes were three: %s", out)
		}
		if err := box.SetRlimits(t.Context(), []Rlimit{{unix.RLIMIT_NPROC, 9, 9}, {unix.RLIMIT_NOFILE, 30, 40}}); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, box, count); got != "30\nforked" {
			t.Error(got)
		}
		if err := box.SetRlimits(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			t.Fatal(err)
		}
		want := amount(own.Cur)
		if got := sh(t, box, "tr -s ' ' </proc/self/limits | sed -n 's/^Max processes \\([^ ]*\\) .*/\\1/p'"); got != want {
			t.Errorf("without limits there are %s, want %s", got, want)
		}
		if err := box.SetRlimits(t.Context(), []Rlimit{{Resource: -1}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("nonsense: %v", err)
		}
		if err := box.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := box.SetRlimits(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("a box that is gone: %v", err)
		}
	})
}

func TestMoreThanTheKeepersOwnHardLimitIsRefused(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
			t.Fatal(err)
		}
		more := []Rlimit{{unix.RLIMIT_NOFILE, 10, own.Max + 1}}
		spec.Rlimits = more
		_, _, err := Start(t.Context(), spec, nil)
		refused := func(err error) {
			t.Helper()
			var e *Error
			if !errors.Is(err, ErrDenied) || !errors.As(err, &e) || len(e.Hints) != 1 ||
				!strings.HasSuffix(e.Error(), "the hard limit of this process is "+strconv.FormatUint(own.Max, 10)) {
				t.Errorf("%v, %+v", err, e)
			}
		}
		refused(err)
		spec = renewed(t, spec)
		spec.Rlimits = nil
		refused(open(t, spec).SetRlimits(t.Context(), more))
	})
}

// Under his own id the kernel exempts root from it: a limit that holds nobody is
// refused.
func TestRootsOwnIDHasNoLimitOfProcesses(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	spec := Spec{Mounts: []Mount{{Target: "/", Source: "/"}}, Network: NetworkNone, IDs: Same, Rlimits: []Rlimit{{unix.RLIMIT_NPROC, 5, 5}}}
	if _, _, err := Start(t.Context(), spec, nil); !errors.Is(err, ErrNotSupported) {
		t.Error(err)
	}
}
