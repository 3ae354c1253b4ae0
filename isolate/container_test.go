package isolate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
	"github.com/snapfs/snapfs/isolate/mounts"
)

func TestStatusAndSignalsPassThrough(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for script, want := range map[string]Status{
			"exit 0":        {},
			"exit 7":        {Code: 7},
			"kill -TERM $$": {Signal: syscall.SIGTERM},
		} {
			if _, st := output(t, container, shell(script)); st != want {
				t.Errorf("%s: %+v, want %+v", script, st, want)
			}
		}
		p, err := container.Exec(t.Context(), shell("trap 'exit 3' USR1; echo; while :; do sleep 0.01; done"))
		if err != nil {
			t.Fatal(err)
		}
		for {
			if err := p.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			st, err := p.Wait(ctx)
			cancel()
			if err == nil {
				if st.Code != 3 && st.Signal != syscall.SIGUSR1 { // the signal came before the trap
					t.Errorf("%+v", st)
				}
				return
			}
			if !errors.Is(err, errs.ErrInterrupted) {
				t.Fatal(err)
			}
		}
	})
}

func TestCommandsThatCannotBeRun(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for _, c := range []struct {
			name string
			code int
			kind error
		}{{"no-such-command", 127, errs.ErrNotFound}, {"/no/such", 127, errs.ErrNotFound}, {"/etc/passwd", 126, errs.ErrDenied}, {"/usr", 126, errs.ErrDenied}} {
			command := shell("")
			command.Args = []string{c.name}
			_, err := container.Exec(t.Context(), command)
			var ce *CommandError
			if !errors.As(err, &ce) || ce.ExitCode() != c.code || !errors.Is(err, c.kind) {
				t.Errorf("exec %s: %v", c.name, err)
			}
			b, _, err := Start(t.Context(), renewed(t, spec), &command)
			if !errors.As(err, &ce) || ce.ExitCode() != c.code || b != nil {
				t.Errorf("start %s: %v", c.name, err)
			}
		}
		command := shell("")
		command.Dir = "/no/such/dir"
		_, err := container.Exec(t.Context(), command)
		var e *errs.Error
		if !errors.As(err, &e) || e.Path != command.Dir || !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("working directory: %v", err)
		}
		if got := sh(t, container, "echo still here"); got != "still here" {
			t.Error(got)
		}
	})
}

func TestStreamsPassByteForByte(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		sink, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := shell("cat; cat /dev/null >&2; exec 0<&-; cat /proc/self/fd/0 2>/dev/null; exit 5")
		c.Stdin, c.Stdout = in, out
		p, err := container.Exec(t.Context(), c)
		in.Close()
		out.Close()
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("\x00\xff\r\n\x1b[0m"), 100_000)
		go func() {
			if _, err := feed.Write(sent); err != nil {
				t.Error(err)
			}
			feed.Close()
		}()
		got, err := io.ReadAll(sink)
		sink.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came back of %d: %v", len(got), len(sent), err)
		}
		if st, _ := p.Wait(t.Context()); st.Code != 5 {
			t.Errorf("%+v", st)
		}
	})
}

func TestContainerHasItsOwnKernelFilesystems(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for script, want := range map[string]string{
			"hostname":                               "sandbox",
			"ls /proc/self/fd | wc -l":               "4", // with that of ls itself
			"cat /proc/1/comm":                       "snapfs-init",
			"tr '\\0' ' ' </proc/1/cmdline":          "snapfs-init",
			"ls /sys/class/net":                      "lo",
			"cat /sys/class/net/lo/operstate":        "unknown",
			"echo x >/tmp/f && cat /tmp/f":           "x",
			"echo x >/dev/shm/f && cat /dev/shm/f":   "x",
			"stat -c %a /tmp /run/lock | tr '\\n' ,": "1777,1777,",
			"head -c 3 /dev/zero | wc -c":            "3",
			"echo x >/dev/null && echo ok":           "ok",
			"grep -c . /proc/net/dev":                "3",
		} {
			if got := sh(t, container, script); strings.TrimSpace(got) != want {
				t.Errorf("%s: %q, want %q", script, got, want)
			}
		}
		if n := sh(t, container, "ls -d /proc/[0-9]* | wc -l"); len(n) > 1 {
			t.Errorf("%s processes are seen", n)
		}
		if limit := sh(t, container, "ulimit -n"); limit == "" {
			t.Error("no limit of open files")
		}
	})
}

func TestMemoryBehindFilesIsBounded(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.TmpLimits = []string{"size=1048576", "nr_inodes=300"}
		container := open(t, spec)
		for _, dir := range []string{"/tmp", "/dev/shm"} {
			for _, script := range []string{"head -c 2M /dev/zero > big", "touch $(seq 400)"} {
				if out, st := output(t, container, shell("cd "+dir+"; rm -f *; "+script)); st == (Status{}) || !strings.Contains(out, "No space left") {
					t.Errorf("%s in %s: %+v, %q", script, dir, st, out)
				}
			}
		}
	})
}

// TestALimitOfMemoryBoundsTheInodes, which use the kernel's memory even if the files are empty.
func TestALimitOfMemoryBoundsTheInodes(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.TmpLimits = []string{"size=104857600"}
		container := open(t, spec)
		for _, dir := range []string{"/tmp", "/dev/shm", "/run"} {
			if got := strings.TrimSpace(sh(t, container, "stat -f -c %c "+dir)); got != "25600" {
				t.Errorf("%s has %s inodes", dir, got)
			}
		}
	})
}

// TestMemoryBehindFilesIsAShareOfTheHosts, and less than all of it together.
func TestMemoryBehindFilesIsAShareOfTheHosts(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.TmpLimits = []string{"size=1125899906842624"}
		container := open(t, spec)
		out := sh(t, container, "for d in /tmp /dev /run; do stat -f -c '%b %S' $d; done; grep MemTotal /proc/meminfo")
		var blocks, size [3]int64
		var total int64
		if _, err := fmt.Sscanf(strings.ReplaceAll(out, "\n", " "), "%d %d %d %d %d %d MemTotal: %d", &blocks[0], &size[0], &blocks[1], &size[1], &blocks[2], &size[2], &total); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		for i, share := range []int64{50, 20, 10} {
			if held := blocks[i] * size[i]; held > total<<10/100*share+1<<20 || held < total<<10/100*(share-1) {
				t.Errorf("%d: %d bytes of %d KiB", i, held, total)
			}
		}
	})
}

// What a container without a network refused is known; a test server of its own is none of it.
func TestUnreachedIsWhatHadNoRoute(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		for script, want := range map[string]bool{
			"true": false,
			"exec 3<>/dev/tcp/127.0.0.1/9 || exec 3<>/dev/tcp/::1/9": false,
			"exec 3<>/dev/tcp/192.0.2.1/9":                           true,
			"exec 3<>/dev/tcp/2001:db8::1/9":                         true,
			"echo > /dev/udp/192.0.2.1/53":                           true,
			"echo > /dev/udp/127.0.0.1/53":                           true,
		} {
			container := open(t, spec)
			c := shell(script)
			c.Args[0] = "bash"
			output(t, container, c)
			if got := container.Unreached(); got != want {
				t.Errorf("%s: %v, want %v", script, got, want)
			}
			spec = renewed(t, spec)
		}
	})
}

func TestWritesStayInTheUpperLayer(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	spec := rootSpec(t)
	container := open(t, spec)
	sh(t, container, "echo new >/etc/new-file; chown 7:8 /etc/new-file; echo x >>/etc/passwd; mv /usr/share/doc /usr/share/moved")
	if _, err := os.Stat("/etc/new-file"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the real tree was written")
	}
	var st unix.Stat_t
	if err := unix.Stat(spec.Mounts[0].Overlay.Upper+"/etc/new-file", &st); err != nil || st.Uid != 7 || st.Gid != 8 {
		t.Errorf("on disk the file belongs to %d:%d: %v", st.Uid, st.Gid, err)
	}
}

// Kernels before 6.15 need each layer of an overlay to be attached. The test calls that code on any kernel.
func TestOverlayOfAttachedLayers(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	container := open(t, rootSpec(t)) // for its user namespace
	userns, err := os.Open("/proc/" + strconv.Itoa(container.pid) + "/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	defer userns.Close()
	m, err := mounts.OverlayInScratch(*overlay(t, "/"), 0, &mounts.Layers{Userns: userns}, 1<<28)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(int(m.Fd()), "etc/passwd", &st, 0); err != nil || st.Uid != 1<<28 {
		t.Errorf("seen from outside, the owner is %d: %v", st.Uid, err)
	}
	if err := unix.Mkdirat(int(m.Fd()), "etc/new", 0o755); err == nil || errors.Is(err, unix.EROFS) {
		t.Errorf("the host's root is nobody there, but mkdir says: %v", err)
	}
}

func TestCommandRunsAsAnotherUser(t *testing.T) {
	treetest.NeedRoot(t)
	leakless(t)
	container := open(t, rootSpec(t))
	c := shell("id -u; id -g; id -G; grep CapEff /proc/self/status; cat /etc/shadow >/dev/null 2>&1 || echo refused")
	c.UID, c.GID, c.Groups = 1234, 5678, []uint32{5678, 42}
	out, _ := output(t, container, c)
	if want := "1234\n5678\n5678 42\nCapEff:\t0000000000000000\n"; !strings.HasPrefix(out, want) {
		t.Errorf("%q", out)
	}
	c.UID = 1 << 20
	if _, err := container.Exec(t.Context(), c); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

func TestStartRunsTheFirstCommand(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		for range 20 {
			c := shell("exit 4")
			container, p, err := Start(t.Context(), renewed(t, spec), &c)
			if err != nil {
				t.Fatal(err)
			}
			if st, err := p.Wait(t.Context()); st.Code != 4 || err != nil {
				t.Errorf("%+v %v", st, err)
			}
			<-container.Idle()
			if err := container.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestIdleWaitsForDaemons(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		gate, hold, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := shell("exec 3<&0; (setsid sh -c 'read x <&3' &)")
		c.Stdin = gate
		p, err := container.Exec(t.Context(), c)
		gate.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-container.Idle():
			t.Error("idle while a daemon runs")
		case <-time.After(50 * time.Millisecond):
		}
		hold.Close()
		select {
		case <-container.Idle():
		case <-time.After(5 * time.Second):
			t.Error("never idle")
		}
		if got := sh(t, container, "echo more"); got != "more" {
			t.Error(got)
		}
	})
}

func TestCloseEndsEveryProcess(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		if _, err := container.Exec(t.Context(), shell("trap '' TERM INT HUP; (setsid sleep 1000 &); f() { sleep 1000 | f & }; f; sleep 1000")); err != nil {
			t.Fatal(err)
		}
		p, err := container.Exec(t.Context(), shell("sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var pids []stopped.Thread
		if err := poll.Until(ctx, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
			pids = descendants(container.pid)
			return len(pids) >= 5, nil
		}); err != nil {
			t.Fatalf("only %d processes: %v", len(pids), err)
		}
		if err := container.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, d := range pids {
			if unix.Kill(d.PID, 0) == nil {
				t.Errorf("process %d lives", d.PID)
			}
		}
		if st, _ := p.Wait(t.Context()); st.Signal != syscall.SIGKILL {
			t.Errorf("%+v", st)
		}
		if _, err := container.Exec(t.Context(), shell("")); !errors.Is(err, errs.ErrClosed) {
			t.Error(err)
		}
		if _, err := container.Root(); !errors.Is(err, errs.ErrClosed) {
			t.Error(err)
		}
		if err := container.Freeze(t.Context()); !errors.Is(err, errs.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestConcurrentExecs(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		fails := make(chan error, 100)
		for i := range cap(fails) {
			go func() {
				c := shell("exit " + string('0'+byte(i%10)))
				p, err := container.Exec(t.Context(), c)
				if err == nil {
					var st Status
					if st, err = p.Wait(t.Context()); err == nil && st.Code != i%10 {
						err = errors.New("a status was mixed up")
					}
				}
				fails <- err
			}()
		}
		for range cap(fails) {
			if err := <-fails; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestRootShowsTheContainersFiles(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		sh(t, container, "echo inside >/tmp/seen")
		root, err := container.Root()
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		fd, err := unix.Openat(int(root.Fd()), "tmp/seen", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "seen")
		defer f.Close()
		if got, _ := io.ReadAll(f); string(got) != "inside\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestStartIsAllOrNothing(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		for name, spoil := range map[string]func(*Spec){
			"mounts": func(s *Spec) { s.Mounts[0].Target = "/x" },
			"target": func(s *Spec) { s.Mounts = append(s.Mounts, Mount{Target: "/no/such", Source: "/etc", ReadOnly: true}) },
			"source": func(s *Spec) { s.Mounts = append(s.Mounts, Mount{Target: "/etc", Source: "/no/such"}) },
			"tmp":    func(s *Spec) { s.Tmp = "/no/such" },
			"hide":   func(s *Spec) { s.Hide = []string{"relative"} },
			"net":    func(s *Spec) { s.Network = "mars" },
		} {
			s := renewed(t, spec)
			spoil(&s)
			container, _, err := Start(t.Context(), s, nil)
			var e *errs.Error
			if !errors.As(err, &e) || container != nil || e.Op == "" {
				t.Errorf("%s: %v", name, err)
			}
			if strings.HasPrefix(name, "s") && !errors.Is(err, errs.ErrNotFound) {
				t.Errorf("%s: kind of %v", name, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := Start(ctx, spec, nil); !errors.Is(err, errs.ErrInterrupted) {
			t.Error(err)
		}
	})
}

func TestOpenFileLimitIsTheSupervisors(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", "ulimit -Sn 123; exec "+binary)
	c.Env = append(os.Environ(), "SNAPFS_TEST_AS=limited")
	if out, err := c.CombinedOutput(); err != nil || string(out) != "123\n" {
		t.Errorf("%q %v", out, err)
	}
}
