//go:build linux

package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// Where the process that shows a sandbox's files is killed, what runs there is ended and
// whoever waits for it is told why; each command after that finds the sandbox as it was
// synced, and nothing is left of what was.
func TestWhatServesASandboxIsKilled(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		treetest.NeedDevice(t, "/dev/fuse")
		servedToDeath(t)
	})
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
			return
		}
		treetest.NeedDevice(t, "/dev/fuse")
		servedToDeath(t)
	})
}

func servedToDeath(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "--backend", "fusecow", "s").want(0)
	for _, c := range []struct{ args, want string }{
		{"diff --stat s", "synced"},
		{"exec s -- cat synced", "mine"},
		{"show s", "idle"},
		{"snapshot s kept", "kept"},
		{"gc", ""},
		{"rollback s kept", ""},
		{"exec s -- cat synced", "mine"},
		{"rm s", ""},
	} {
		b.kill("s", "while cat real; do sleep 0.01; done")
		if got := b.snapfs(strings.Fields(c.args)...).want(0); !strings.Contains(got.stdout, c.want) {
			t.Errorf("%s after a kill says %q", c.args, got.all)
		}
	}
	b.real()
}

// kill runs a script in a sandbox once something is synced there, and kills what serves it.
func (b *desk) kill(name, script string) {
	b.t.Helper()
	cmd := b.command("exec", name, "--", "sh", "-c", "echo mine > synced; sync synced; echo up; "+script)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	c := &background{b.t, cmd, bufio.NewReader(out)}
	if line, err := c.out.ReadString('\n'); err != nil || line != "up\n" {
		b.t.Fatalf("%q, %v: %s", line, err, &said)
	}
	if err := syscall.Kill(b.server(), syscall.SIGKILL); err != nil {
		b.t.Fatal(err)
	}
	status, _ := c.ended()
	if want := name + ": the process that showed its files was killed"; !strings.Contains(said.String(), want) {
		b.t.Errorf("what ran in it ended with status %d, and %q was said", status, &said)
	}
}

// server is the process that has a layer of the desk's open to write to it.
func (b *desk) server() int {
	b.t.Helper()
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, b.state) || filepath.Base(to) != "log" {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			b.t.Fatal(err)
		}
		return pid
	}
	b.t.Fatal("nothing serves the sandbox")
	return 0
}
