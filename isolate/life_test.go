package isolate

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
)

func TestFrozenProcessesWriteNothing(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) { freezes(t, spec) })
}

func TestFreezersOfCgroups(t *testing.T) {
	treetest.NeedRoot(t)
	roots, err := hostinfo.CgroupRoots()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, r := range roots {
		if r.Version == 1 && (len(r.Controllers) == 0 || r.Controllers[0] != "freezer") {
			continue
		}
		tried++
		t.Run("v"+strconv.Itoa(r.Version), func(t *testing.T) {
			leakless(t)
			dir := filepath.Join(r.Path, "snapfs-test-"+strconv.Itoa(os.Getpid()))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			})
			d := treetest.Open(t, dir)
			spec := rootSpec(t)
			spec.Cgroups = []*os.File{d}
			freezes(t, spec)
			if procs, err := os.ReadFile(dir + "/cgroup.procs"); err != nil || len(procs) > 0 {
				t.Errorf("left in the cgroup: %q %v", procs, err)
			}
		})
	}
	if tried == 0 {
		treetest.Skip(t, "a cgroup freezer", "no hierarchy is mounted")
	}
}

// freezeOnce checks that processes that write into a file of this size stop while frozen, and continue.
func freezeOnce(t *testing.T, container *Container, size func() int64) {
	t.Helper()
	if err := container.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := size()
	time.Sleep(20 * time.Millisecond)
	if after := size(); after != before {
		t.Errorf("a frozen process wrote %d bytes", after-before)
	}
	if _, err := container.Exec(t.Context(), shell("")); !errors.Is(err, errs.ErrBusy) {
		t.Errorf("exec into a frozen container: %v", err)
	}
	if err := container.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for size() == before && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if size() == before {
		t.Fatal("no process writes after Thaw")
	}
}

// freezes checks Freeze on processes that write into a file as fast as they can.
func freezes(t *testing.T, spec Spec) {
	container, _, err := Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := container.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	const busy = "for i in 1 2 3; do (while :; do echo x >>/tmp/busy; (:); done) & done; echo on; wait"
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := shell(busy)
	c.Stdout = w
	if _, err := container.Exec(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	own, err := container.Exec(t.Context(), shell("kill -STOP $$; exit 9"))
	if err != nil {
		t.Fatal(err)
	}
	for !slices.ContainsFunc(descendants(container.pid), func(p stopped.Thread) bool { return p.State == 'T' }) {
		time.Sleep(time.Millisecond)
	}
	root, err := container.Root()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var fd int
	for err = unix.ENOENT; errors.Is(err, unix.ENOENT); { // one of the three makes it
		fd, err = unix.Openat(int(root.Fd()), "tmp/busy", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	size := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Error(err)
		}
		return st.Size
	}
	for range 5 {
		freezeOnce(t, container, size)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if st, err := own.Wait(ctx); err == nil {
		t.Errorf("a process that was stopped before continues: %+v", st)
	}
	if err := container.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := size()
	if err := container.Close(t.Context()); err != nil { // while frozen
		t.Fatal(err)
	}
	if after := size(); after != before {
		t.Errorf("frozen processes wrote %d bytes during Close", after-before)
	}
}

// The kernel ends every process of a container whose supervisor is killed.
func TestKilledSupervisorLeavesNoProcess(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	supervisor := exec.Command(binary)
	supervisor.Env = append(os.Environ(), "SNAPFS_TEST_AS=supervisor")
	out, err := supervisor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line)
	}
	inside := descendants(pid)
	for range 100 {
		if len(inside) >= 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
		inside = descendants(pid)
	}
	if len(inside) < 3 {
		t.Errorf("only %v in the container", inside)
	}
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	supervisor.Wait() //nolint:errcheck // it was killed
	for _, d := range inside {
		deadline := time.Now().Add(5 * time.Second)
		for unix.Kill(d.PID, 0) == nil && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if unix.Kill(d.PID, 0) == nil {
			t.Errorf("process %d lives", d.PID)
		}
	}
}

func TestCloseEndsAForkBomb(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container, _, err := Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := container.Exec(t.Context(), shell("ulimit -u 500 2>/dev/null; i=0; while [ $i -lt 1000 ]; do (trap '' TERM; exec sleep 1000) & i=$((i+1)); done; wait")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if err := container.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := descendants(container.pid); len(left) > 0 {
			t.Errorf("%d processes live", len(left))
		}
	})
}

func TestClearEndsCommandsButNotTheContainer(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		if err := container.Clear(t.Context()); err != nil {
			t.Errorf("before anything has run: %v", err)
		}
		p, err := container.Exec(t.Context(), shell("for i in 1 2 3 4; do (trap '' TERM; setsid sleep 1000) & done; kill -STOP $$"))
		if err != nil {
			t.Fatal(err)
		}
		for len(descendants(container.pid)) < 5 {
			time.Sleep(time.Millisecond)
		}
		for range 2 { // the second time finds no process
			if err := container.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := descendants(container.pid); len(left) > 0 {
				t.Errorf("%d processes live", len(left))
			}
		}
		if st, err := p.Wait(t.Context()); err != nil || st.Signal != syscall.SIGKILL {
			t.Errorf("the command ended with %+v, %v", st, err)
		}
		if got := sh(t, container, "echo on"); got != "on" && got != "on\n" {
			t.Errorf("it says %q", got)
		}
		if err := container.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := container.Clear(t.Context()); !errors.Is(err, errs.ErrBusy) {
			t.Errorf("while frozen: %v", err)
		}
		if err := container.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := container.Clear(t.Context()); !errors.Is(err, errs.ErrClosed) {
			t.Errorf("when closed: %v", err)
		}
	})
}

func TestTerminalIsTheContainersOwn(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		c := shell("tty; stty size; read line; echo got $line; trap 'stty size; exit 6' WINCH; echo ready; while :; do sleep 0.01; done")
		c.TTY = &Size{Rows: 30, Cols: 100}
		p, err := container.Exec(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		lines := bufio.NewReader(p.PTY())
		expect := func(want string) {
			t.Helper()
			line, err := lines.ReadString('\n')
			if strings.TrimSpace(line) != want {
				t.Fatalf("%q, want %q: %v", line, want, err)
			}
		}
		expect("/dev/pts/0")
		expect("30 100")
		if _, err := io.WriteString(p.PTY(), "words\n"); err != nil {
			t.Fatal(err)
		}
		expect("words") // the terminal's echo
		expect("got words")
		expect("ready")
		if err := p.Resize(Size{Rows: 50, Cols: 132}); err != nil {
			t.Fatal(err)
		}
		expect("50 132")
		if st, err := p.Wait(t.Context()); st.Code != 6 || err != nil {
			t.Errorf("%+v %v", st, err)
		}
	})
}

func TestOpenViewsShowsTrees(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		lower := filepath.Join(scratch(t), "lower")
		mkdir(t, lower)
		write(t, lower+"/kept", "lower")
		write(t, lower+"/changed", "lower")
		o := overlay(t, lower)
		o.Nested, o.UserXattr = false, os.Geteuid() != 0
		write(t, o.Upper+"/changed", "upper")
		second := *o
		second.Lower = []string{o.Upper, lower}
		second.Upper, second.Work = "", ""
		views, err := OpenViews(t.Context(), []Mount{
			{Target: "/", Source: lower},
			{Target: "/", Overlay: o},
			{Target: "/", Overlay: &second},
			{Target: "/", Overlay: &Overlay{Lower: []string{lower}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"lower", "upper", "upper", "lower"} {
			root, err := os.OpenRoot(vfs.FDPath(views[i]))
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"kept": "lower", "changed": want} {
				if got, err := root.ReadFile(name); string(got) != want || err != nil {
					t.Errorf("view %d: %s: %q %v", i, name, got, err)
				}
			}
			if os.Geteuid() == 0 || i == 1 {
				if err := root.WriteFile("new", nil, 0o600); !errors.Is(err, syscall.EROFS) {
					t.Errorf("view %d can be written: %v", i, err)
				}
			}
			if err := errors.Join(root.Close(), views[i].Close()); err != nil {
				t.Error(err)
			}
		}
		if _, err := OpenViews(t.Context(), []Mount{{Target: "/", Source: lower}, {Target: "/", Source: "/no/such"}}); !errors.Is(err, errs.ErrNotFound) {
			t.Error(err)
		}
		bad := *o
		bad.Lower = []string{"/no/such"}
		if _, err := OpenViews(t.Context(), []Mount{{Target: "/", Overlay: &bad}}); err == nil {
			t.Error("a view of nothing")
		}
	})
}

func TestLevelMatchesTheKernel(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		for _, network := range []Network{NetworkNone, NetworkHost} {
			spec := renewed(t, spec)
			spec.Network = network
			container := open(t, spec)
			level := container.Level()
			for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "cgroup", "net"} {
				outside, err := os.Readlink("/proc/self/ns/" + ns)
				if err != nil {
					t.Fatal(err)
				}
				own := sh(t, container, "readlink /proc/self/ns/"+ns) != outside
				if said := strings.Contains(","+strings.Join(level.Namespaces, ",")+",", ","+ns+","); said != own {
					t.Errorf("namespace %s: said %v, is %v", ns, said, own)
				}
			}
			status := sh(t, container, "cat /proc/self/status")
			if level.NoNewPrivs != strings.Contains(status, "NoNewPrivs:\t1") || level.Seccomp != strings.Contains(status, "Seccomp:\t2") {
				t.Errorf("%s\n%s", level, status)
			}
			if len(level.Missing) > 0 || !strings.Contains(level.String(), "no_new_privs; seccomp") {
				t.Error(level)
			}
		}
	})
}

func TestOpenForksWritesToTheUpperLayer(t *testing.T) {
	asBoth(t, func(t *testing.T, _ Spec) {
		lower := filepath.Join(scratch(t), "lower")
		mkdir(t, lower+"/dir")
		write(t, lower+"/kept", "lower")
		write(t, lower+"/gone", "lower")
		write(t, lower+"/dir/changed", "lower")
		o := overlay(t, lower)
		o.Nested, o.UserXattr = false, os.Geteuid() != 0
		forks, err := OpenForks(t.Context(), []Mount{{Target: "/", Overlay: o}})
		if err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(vfs.FDPath(forks[0]))
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(root.WriteFile("dir/changed", []byte("fork"), 0o600), root.Remove("gone"), root.Mkdir("new", 0o700))
		if err = errors.Join(err, root.Close(), forks[0].Close()); err != nil {
			t.Fatal(err)
		}
		views, err := OpenViews(t.Context(), []Mount{{Target: "/", Overlay: o}})
		if err != nil {
			t.Fatal(err)
		}
		defer views[0].Close()
		root, err = os.OpenRoot(vfs.FDPath(views[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if got, err := root.ReadFile("dir/changed"); string(got) != "fork" || err != nil {
			t.Errorf("changed: %q, %v", got, err)
		}
		if _, err := root.Lstat("gone"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("gone: %v", err)
		}
		for _, name := range []string{"gone", "kept", "dir/changed"} {
			if got, err := os.ReadFile(lower + "/" + name); string(got) != "lower" || err != nil {
				t.Errorf("the layer below: %s: %q, %v", name, got, err)
			}
		}
	})
}

// Pid 1 reports a request before it has executed the last steps of it: the next request, however soon, must not
// overwrite these.
func TestRapidRequestsDoNotOverlap(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for range 2000 {
			if err := container.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			if err := container.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := sh(t, container, "echo on"); strings.TrimSpace(got) != "on" {
				t.Fatalf("command %d says %q", i, got)
			}
		}
	})
}

// Without the report, a caller that learns that the container has ended would start the command again.
func TestReportBeforeTheEndIsNotLost(t *testing.T) {
	for range 64 {
		b := &Container{reports: make(chan report, 1), done: make(chan struct{})}
		b.reports <- report{kind: reportStarted}
		close(b.done)
		if r, ok := b.awaitReport(); !ok || r.kind != reportStarted {
			t.Fatal("the report of pid 1 is lost")
		}
	}
}
