package prove

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/limits"
)

// In a sandbox every probe reports isolation, for root and for an ordinary user.
func TestEveryProbeIsHeldInASandbox(t *testing.T) {
	asBoth(t, func(t *testing.T, spec isolate.Spec) {
		dir, state := scratch(t), scratch(t)
		if err := os.WriteFile(filepath.Join(state, "record"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		secret := filepath.Join(dir, "secret")
		if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		name := "snapfs-prove-" + strconv.Itoa(os.Getpid())
		a, err := net.Listen("unix", "@"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		pid, start := victim(t)

		spec.Mounts = append(spec.Mounts, isolate.Mount{Target: "/mnt", Source: dir})
		spec.Hide, spec.ReadOnly = []string{"/mnt/secret", state}, []string{"/usr"}
		spec.Rlimits = []isolate.Rlimit{
			{Resource: unix.RLIMIT_NPROC, Cur: 40, Max: 40},
			{Resource: unix.RLIMIT_NOFILE, Cur: 64, Max: 64},
			{Resource: unix.RLIMIT_CPU, Cur: 1, Max: 1},
		}
		container := open(t, spec)
		probes := map[string][]string{
			"pids": {"40"}, "files": {"64"}, "cpu-time": {"1s"},
			"name": {"example.com:443"}, "ipv4": {"1.1.1.1:443"}, "ipv6": {"[2606:4700::1111]:443"}, "resolver": {"9.9.9.9:53", "example.com"},
			"metadata": nil, "loopback": {port}, "abstract-socket": {name},
			"masked": {"/mnt/secret"}, "passwords": {"/mnt/secret"}, "late-secret": {"/mnt/secret"}, "replaced-secret": {"/mnt/secret"}, "state": {state}, "variables": {"SNAPFS_PROVE_NOT_THERE"}, "read-only": {"/usr", "/mnt/secret"},
			"see-process": {pid, start}, "signal-process": {pid, start}, "trace-process": {pid, start}, "pid-1": nil,
		}
		for _, p := range powerProbes() {
			probes[p.Name] = nil
		}
		for name, args := range probes {
			for _, uid := range usersOf(spec) {
				if r := inside(t, container, uid, name, args...); !r.Held {
					t.Errorf("user %d: %+v", uid, r)
				}
			}
		}
		if r := inside(t, container, 0, "masked", "/mnt/secret", "/mnt"); r.Held {
			t.Errorf("a path that is not masked: %+v", r)
		}
	})
}

// A directory of the host without its sockets: none is reached, whether bound before the start of the container or
// after it.
func TestSocketsOfTheHostAreOutOfReach(t *testing.T) {
	asBoth(t, func(t *testing.T, spec isolate.Spec) {
		dir := scratch(t)
		bind := func(name string) {
			t.Helper()
			l, err := net.Listen("unix", filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o666)); err != nil {
			t.Fatal(err)
		}
		bind("before")
		spec.Mounts = append(spec.Mounts,
			isolate.Mount{Target: "/mnt", Source: dir, ReadOnly: true, NoSockets: true, MayVanish: spec.IDs == isolate.Same},
			isolate.Mount{Target: "/srv", Source: dir, ReadOnly: true},
		)
		container := open(t, spec)
		bind("after")
		for _, uid := range usersOf(spec) {
			if r := inside(t, container, uid, "host-socket", "/mnt/before", "/mnt/after"); !r.Held {
				t.Errorf("user %d: %+v", uid, r)
			}
			if r := inside(t, container, uid, "read-only", "/mnt", "/mnt/file"); !r.Held {
				t.Errorf("user %d: %+v", uid, r)
			}
			if r := inside(t, container, uid, "masked", "/mnt/file"); r.Held {
				t.Errorf("user %d reads no files there: %+v", uid, r)
			}
			for _, name := range []string{"before", "after"} {
				if r := inside(t, container, uid, "host-socket", "/srv/"+name); r.Held {
					t.Errorf("user %d, where sockets are shown: %+v", uid, r)
				}
			}
		}
	})
}

// The owner of the container enforces a time limit by ending it, and the probe with it.
func TestTimeLimitEndsTheContainer(t *testing.T) {
	asBoth(t, func(t *testing.T, spec isolate.Spec) {
		container := open(t, spec)
		time.AfterFunc(500*time.Millisecond, func() { _ = container.Close(context.Background()) })
		if r := inside(t, container, 0, "time", "500ms"); !r.Held || r.Happened != "it was killed" {
			t.Errorf("%+v", r)
		}
	})
}

// Limits that control groups enforce.
func TestLimitProbesReportCgroups(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	dir := treetest.Dir(t)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	g, err := limits.Start(t.Context(), "prove", limits.Limits{CPUs: 0.3, Memory: 100 << 20, PIDs: 60, WriteRate: 2 << 20}, limits.Options{Devices: []uint64{st.Dev}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	spec := rootSpec()
	spec.Mounts = append(spec.Mounts, isolate.Mount{Target: "/mnt", Source: dir})
	spec.Cgroups = g.Cgroups()
	container := open(t, spec)
	for name, args := range map[string][]string{"pids": {"60"}, "cpus": {"0.3"}, "write-rate": {"2097152", "/mnt"}} {
		r := inside(t, container, 0, name, args...)
		if !r.Held && !strings.HasPrefix(r.Happened, "could not be tried: the ") { // a machine with other load

			t.Errorf("%+v", r)
		}
	}
	if r := inside(t, container, 0, "memory", strconv.Itoa(100<<20)); !r.Held || r.Happened != "it was killed" {
		t.Errorf("%+v", r)
	}
	if err := container.Close(t.Context()); err != nil { // then its control groups can be removed
		t.Error(err)
	}
}

// A full disk counts as a disk limit.
func TestDiskProbesReportAFullDisk(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	dir := treetest.Dir(t)
	if err := unix.Mount("prove", dir, "tmpfs", 0, "size=4m,nr_inodes=100"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	r := bare(t, "disk", strconv.Itoa(4<<20), dir)
	if !r.Held || !strings.Contains(r.Happened, "no space left") {
		t.Errorf("%+v", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if r := bare(t, "inodes", "100", dir); !r.Held || !strings.Contains(r.Happened, "no space left") {
		t.Errorf("%+v", r)
	}
	if r := bare(t, "inodes", "40", dir); r.Held {
		t.Errorf("a limit of files above the one that was promised: %+v", r)
	}
	if r := bare(t, "disk", strconv.Itoa(1<<20), dir); r.Held {
		t.Errorf("a limit above the one that was promised: %+v", r)
	}
}

func asBoth(t *testing.T, test func(t *testing.T, spec isolate.Spec)) {
	t.Helper()
	if os.Geteuid() == 0 {
		treetest.Leaks(t)
		test(t, rootSpec())
	}
	if treetest.AsUser(t) {
		treetest.Leaks(t)
		test(t, isolate.Spec{Mounts: []isolate.Mount{{Target: "/", Source: "/", ReadOnly: true}}, Network: isolate.NetworkNone, IDs: isolate.Same})
	}
}

func rootSpec() isolate.Spec {
	return isolate.Spec{
		Mounts:  []isolate.Mount{{Target: "/", Source: "/", ReadOnly: true}},
		Network: isolate.NetworkNone, IDs: isolate.Own(1 << 28),
	}
}

func scratch(t *testing.T) string {
	t.Helper()
	if os.Geteuid() == 0 {
		return treetest.Dir(t)
	}
	return t.TempDir()
}

// open starts a container with the probe program in its /tmp.
func open(t *testing.T, spec isolate.Spec) *isolate.Container {
	t.Helper()
	prepared, err := isolate.Prepare(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	container, _, err := prepared.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := container.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	p, err := container.Exec(t.Context(), isolate.Command{
		Args: []string{"/bin/sh", "-c", "cat >/tmp/prover && chmod 755 /tmp/prover"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: self,
	})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(t.Context()); err != nil || st.ExitCode() != 0 {
		t.Fatal(st, err)
	}
	return container
}

// inside runs a probe in a container, as one of its users.
func inside(t *testing.T, container *isolate.Container, uid uint32, name string, args ...string) Report {
	t.Helper()
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := isolate.Command{
		Args: append([]string{"/tmp/prover", "prove", name}, args...), Dir: "/", UID: uid, GID: uid, Stdout: w,
		Env: []string{"SNAPFS_TEST_AS=prover", "PATH=/usr/bin:/bin", "GORACE=" + os.Getenv("GORACE")},
	}
	p, err := container.Exec(t.Context(), c)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := io.Copy(&text, out); err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Read(name, text.Bytes(), st.Signal != 0)
}

// usersOf returns users to test in a container: under Same there is only one.
func usersOf(spec isolate.Spec) []uint32 {
	if spec.IDs == isolate.Same {
		return []uint32{0}
	}
	return []uint32{0, 1234}
}
