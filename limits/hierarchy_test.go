package limits

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func TestLocateOwnGroup(t *testing.T) {
	for _, c := range []struct{ root, path, want string }{
		{"/", "/", "/m"},
		{"/", "/a/b", "/m/a/b"},
		{"/a", "/a", "/m"},
		{"/a", "/a/b", "/m/b"},
		{"/a", "/ab", ""},
		{"/a/b", "/a", ""},
		{"/", "/../a", ""}, // beyond the namespace
	} {
		if got := locate(mount.Point{Root: c.root, Path: "/m"}, c.path); got != c.want {
			t.Errorf("root %s, own %s: %q, want %q", c.root, c.path, got, c.want)
		}
	}
	own := ownGroups("4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/d\n0::/e\nnonsense\n")
	if own["memory"] != "/a/b" || own["cpu"] != "/c" || own["cpuacct"] != "/c" || own[""] != "/e" {
		t.Error(own)
	}
}

// TestLocateOwnGroupFromANamespace: in a cgroup namespace made without new mounts, a mount's root gives only
// the levels above the namespace, not the way down to it.
func TestLocateOwnGroupFromANamespace(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 100}, Options{})
	b := newChild(t, g, "look", nil).begin()
	var said []string
	for s := ""; !strings.HasPrefix(s, "ended"); {
		s = b.line()
		said = append(said, s)
	}
	for _, m := range g.members {
		if !slices.Contains(said, m.path) {
			t.Errorf("%s is not in %q", m.path, said)
		}
	}
	closes(t, g)
}

// TestDelegatedCgroupsLimitAnOrdinaryUser: a user with a delegated group in each hierarchy, as by systemd, has
// the kernel's own limits without root.
func TestDelegatedCgroupsLimitAnOrdinaryUser(t *testing.T) {
	if os.Getenv("SNAPFS_TEST_AS") == "delegated" {
		treetest.Leaks(t)
		delegatedUser(t)
		return
	}
	user := treetest.User(t)
	treetest.Leaks(t)
	leaves := handOver(t, user)
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), "SNAPFS_TEST_AS=delegated")
	c.Dir = "/"
	c.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID)}}
	in, err := c.StdinPipe()
	must(t, err)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	must(t, c.Start())
	for _, leaf := range leaves {
		must(t, vfs.WriteFile(leaf+"/cgroup.procs", strconv.Itoa(c.Process.Pid)))
	}
	_, err = in.Write([]byte("go\n"))
	must(t, err)
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, &out)
	}
	t.Log(&out)
}

// handOver creates a group for a user in each hierarchy and returns those for its processes: in version 2 a
// group within.
func handOver(t *testing.T, user treetest.Account) (leaves []string) {
	t.Helper()
	found, err := hierarchies()
	must(t, err)
	for _, h := range found {
		above := h.own
		if h.version == 2 {
			above = h.mount
			_, lacks, err := enable(above, []string{"cpu", "memory", "pids", "io"})
			must(t, err)
			t.Log("lacks:", lacks)
		}
		dir := filepath.Join(above, fmt.Sprintf("snapfs-delegated-%d", os.Getpid()))
		leaf := dir
		must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { must(t, os.Remove(dir)) })
		if h.version == 2 {
			leaf = filepath.Join(dir, "leaf")
			must(t, os.Mkdir(leaf, 0o755))
			t.Cleanup(func() { must(t, os.Remove(leaf)) })
		}
		leaves = append(leaves, leaf)
		for _, path := range []string{dir, leaf} {
			for _, file := range []string{"", "/cgroup.procs", "/tasks", "/cgroup.subtree_control", "/cgroup.threads"} {
				if err := os.Chown(path+file, user.UID, user.GID); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
		}
	}
	return leaves
}

func delegatedUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Fatal("still root")
	}
	g := started(t, Limits{Memory: 64 << 20, PIDs: 60, CPUs: 0.5}, Options{})
	for _, h := range g.Level() {
		if h.By != ByCgroup1 && h.By != ByCgroup2 {
			t.Errorf("%+v %v", h, g.why)
		}
	}
	b := newChild(t, g, "twice 200000000", nil).begin()
	if c := hitBy(t, g, PartMemory); !c.Killed {
		t.Errorf("%+v", c)
	}
	b.ends()
	closes(t, g)
	must(t, Sweep(t.Context()))
}

func TestParseGroupNameIsStrict(t *testing.T) {
	k := groupName{"a-b.c_1", proc.Process{PID: 12, Start: 345}}
	if got, ok := parseGroupName(k.String()); !ok || got != k {
		t.Error(got, ok)
	}
	for _, name := range []string{
		"", "snapfs", "snapfs-", "snapfs-a", "snapfs-a-1", "snapfs--1-2", "snapfs-a-0-2", "snapfs-a-01-2", "snapfs-a-1-2x",
		"snapfs-a-+1-2", "snapfs-a-1--2", "other-a-1-2", "snapfs-a b-1-2", "snapfs-a-1-2 ", "snapfs-test-k3-9q-1",
	} {
		if k, ok := parseGroupName(name); ok {
			t.Errorf("%q is taken for %+v", name, k)
		}
	}
}
