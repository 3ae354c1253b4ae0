package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestCommandsOnOneSandboxAtOnce: they wait for one another or say that it is in
// use; none is lost, and none sees half of another.
func TestCommandsOnOneSandboxAtOnce(t *testing.T) { asRoot(t, crowd) }

func TestCommandsOnOneSandboxAtOnceForAnOrdinaryUser(t *testing.T) { asUserLater(t, crowd) }

func crowd(t *testing.T) {
	const n = 12
	b := newDesk(t)
	b.snapfs("new", "box").want(0)
	var all sync.WaitGroup
	for i := range n {
		name := "f" + strconv.Itoa(i)
		all.Go(func() { b.snapfs("exec", "box", "--", "sh", "-c", "echo x > "+name).want(0) })
		all.Go(func() { b.snapfs("run", "-q", "--discard", "--", "touch", "mine").want(0) })
		if i%4 == 0 {
			all.Go(func() { b.snapfs("snapshot", "box", name).want(0) })
		}
	}
	all.Wait()
	for i := range n {
		b.snapfs("exec", "box", "--", "test", "-s", "f"+strconv.Itoa(i)).want(0)
	}
	if got := strings.Count(b.snapfs("show", "box").want(0).stdout, " ago\n"); got != n/4+1 {
		t.Errorf("%d states and one birth are told, want %d", got, n/4)
	}
	if got := b.snapfs("ls", "-q").want(0).stdout; got != "box\n" {
		t.Errorf("left: %q", got)
	}
	b.real()
}

// TestWithoutUserNamespacesNothingRuns: it is refused, with what mends it, and
// never run unisolated.
func TestWithoutUserNamespacesNothingRuns(t *testing.T) {
	asUser(t, func(t *testing.T) {
		treetest.NeedProgram(t, "unshare")
		b := newDesk(t)
		inside := func(args string) outcome {
			cmd := exec.Command("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c",
				"echo 0 > /proc/sys/user/max_user_namespaces && exec "+program()+" "+args)
			cmd.Dir, cmd.Env = b.workspace, b.env()
			return b.finish(cmd)
		}
		o := inside("run -- touch " + filepath.Join(b.workspace, "ran")).want(125)
		if !strings.Contains(o.all, "hint: ") {
			t.Errorf("no hint:\n%s", o.all)
		}
		b.real()
		o = inside("doctor").want(7)
		if !strings.Contains(o.all, "user namespaces: no: ") || !strings.Contains(o.all, "max_user_namespaces") {
			t.Errorf("doctor:\n%s", o.all)
		}
	})
}

// TestAReadOnlyWorkspaceIsToldFromAWritableOne: what cannot be written outside
// cannot be inside, and that is said before anything runs, or by the kernel to
// the command; nothing is written.
func TestAReadOnlyWorkspaceIsToldFromAWritableOne(t *testing.T) {
	treetest.NeedRoot(t)
	b := newDesk(t)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount --bind . . && mount -o remount,ro,bind . && cd . && cd \"$PWD\" && exec "+program()+" run -- touch new")
	cmd.Dir, cmd.Env = b.workspace, b.env()
	if o := b.finish(cmd); o.status == 0 || !strings.Contains(o.all, "read-only") && !strings.Contains(o.all, "Read-only") {
		t.Errorf("status %d\n%s", o.status, o.all)
	}
	b.real()
	if _, err := os.Stat(b.state); err != nil {
		t.Error(err)
	}
}
