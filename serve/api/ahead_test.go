//go:build linux

package api

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
)

// namespace returns the namespace of this kind in which the process pid is, "" if the process has ended.
func namespace(pid int, kind string) string {
	ns, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
	return ns
}

// waiting waits until a supervisor of the server has begun a container, and returns its pid 1, which has a network
// namespace of its own and the host's mount namespace. The pid 1 of a container that ends has mounts of its own.
func (d *desk) waiting(server int, but ...proc.Process) (pid1 proc.Process) {
	d.t.Helper()
	waitFor(d.t, "a container that waits for its sandbox", func() bool {
		for _, supervisor := range childrenOf(d.t, server) {
			for _, pid1 = range childrenOf(d.t, supervisor.PID) {
				own := func(kind string) bool { return namespace(pid1.PID, kind) != namespace(os.Getpid(), kind) }
				if own("net") && !own("mnt") && !slices.Contains(but, pid1) {
					return true
				}
			}
		}
		return false
	})
	return pid1
}

// TestTheNextSandboxGetsTheContainerThatWaits: after a sandbox, its supervisor begins a container for the next. Until
// a sandbox with the same policy gets the container, it has no mounts, which would keep filesystems of the host busy.
// Cost: 0.5 s.
func TestTheNextSandboxGetsTheContainerThatWaits(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	d := newState(t)
	server := d.serve()
	d.spawn(server)
	d.make("t1")
	d.exec("t1", "true")
	pid1 := d.waiting(server.Process.Pid)
	open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid1.PID), "fd"))
	if err != nil || len(open) != 4 { // the standard streams and the control socket
		t.Errorf("the container that waits has the open files %v (%v)", open, err)
	}

	d.make("t2")
	r, err := d.try(t.Context(), "POST", "/v1/sandboxes/t2/exec", map[string]any{"command": "echo started; exec sleep 600"}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if !proc.Alive(pid1) || namespace(pid1.PID, "mnt") == namespace(os.Getpid(), "mnt") {
		t.Error("the next sandbox has not got the container that waited")
	}

	d.make("t3")
	d.exec("t3", "true")
	other := d.waiting(server.Process.Pid, pid1)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t4", "network": "host"})
	if r := d.exec("t4", "true"); r.Exit != 0 {
		t.Errorf("%+v", r)
	}
	waitFor(t, "the end of the container that did not fit", func() bool { return !proc.Alive(other) })
}

// TestTheNextSandboxHidesItsOwnPaths: the next sandbox of a supervisor hides what its own policy and the host's present
// files require, also where it could get the layers of the last sandbox, which hide entries. Cost: 0.5 s.
func TestTheNextSandboxHidesItsOwnPaths(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	d := newState(t)
	home := filepath.Join(filepath.Dir(d.work), "home")
	key := filepath.Join(home, ".netrc")
	if err := errors.Join(os.Mkdir(home, 0o755), os.WriteFile(key, []byte("a key\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	server := d.serve()
	server.Env = append(os.Environ(), "HOME="+home)
	d.spawn(server)
	shows := func(name string, policy map[string]any, want string) {
		t.Helper()
		policy["name"] = name
		d.want(201, nil, "POST", "/v1/sandboxes", policy)
		r := d.exec(name, "stat -c %a "+home+"; cd "+home+"; cat .netrc .config/gh/hosts.yml 2>/dev/null || true")
		if r.Stdout.Text != want {
			t.Errorf("%s shows %q, not %q", name, r.Stdout.Text, want)
		}
		d.waiting(server.Process.Pid)
	}
	shows("t1", map[string]any{}, "755\n")
	shows("t2", map[string]any{}, "755\n")
	shows("t3", map[string]any{"expose": []string{key}}, "755\na key\n")
	shows("t4", map[string]any{}, "755\n")
	gh := filepath.Join(home, ".config/gh")
	if err := errors.Join(os.MkdirAll(gh, 0o755), os.WriteFile(gh+"/hosts.yml", []byte("oauth_token: x\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	shows("t5", map[string]any{}, "755\n")
	if err := os.Chmod(home, 0o711); err != nil {
		t.Fatal(err)
	}
	shows("t6", map[string]any{}, "711\n")
}

// TestTheFilesOfARemovedSandboxAreDeletedSoon: the server deletes them after its answer. Cost: 0.1 s.
func TestTheFilesOfARemovedSandboxAreDeletedSoon(t *testing.T) {
	d := newDesk(t)
	for range 3 {
		d.make("t1") // the name is free at once
		call(d.c.RemoveSandboxWithResponse(t.Context(), "t1")).is(d, 204)
	}
	waitFor(t, "the end of the deletions", func() bool {
		left, err := os.ReadDir(filepath.Join(d.state, "trash"))
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
}
