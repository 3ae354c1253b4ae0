//go:build linux

package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/treetest"
)

// Where the process that shows a sandbox's files is killed, what runs there is ended and
// whoever waits for it is told why; each command after that finds the sandbox as it was
// synced, and nothing is left of what was.
func TestWhatServesASandboxIsKilled(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		treetest.NeedDevice(t, "/dev/fuse")
		servedToDeath(t, "fusecow")
		servedToDeath(t, "fusecow-overlay")
	})
	if os.Geteuid() == 0 && !treetest.Long(t) {
		return
	}
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
			return
		}
		treetest.NeedDevice(t, "/dev/fuse")
		servedToDeath(t, "fusecow")
		servedToDeath(t, "fusecow-overlay")
	})
}

func servedToDeath(t *testing.T, backend string) {
	b := newDesk(t)
	b.snapfs("new", "--backend", backend, "s").want(0)
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
		got := b.afterKill(strings.Fields(c.args)...).want(0)
		for until := time.Now().Add(5 * time.Second); strings.Contains(got.stdout, "running") && time.Now().Before(until); {
			got = b.snapfs(strings.Fields(c.args)...).want(0) // its keeper is about to end
		}
		if !strings.Contains(got.stdout, c.want) {
			t.Errorf("%s after a kill says %q", c.args, got.all)
		}
	}
	b.real()
}

// afterKill runs a command once the killed server has released its layer. The kernel ends a
// killed process only when its disk requests are done, which takes longer than the five
// seconds that snapfs waits where many tests write at once.
func (b *desk) afterKill(args ...string) outcome {
	b.t.Helper()
	got := b.snapfs(args...)
	for until := time.Now().Add(30 * time.Second); strings.Contains(got.all, "a process has the layer mounted") && time.Now().Before(until); {
		got = b.snapfs(args...)
	}
	return got
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
	status, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		status, _ = c.ended()
	}()
	// The first that answers may be the server of the command before, which is about to end.
	killed := 0
	for began := time.Now(); ; {
		for _, pid := range b.servers() {
			killed++
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				b.t.Fatal(err)
			}
		}
		select {
		case <-ended:
		case <-time.After(200 * time.Millisecond):
			if time.Since(began) > 20*time.Second {
				c.signal(syscall.SIGKILL)
				b.t.Fatal("what its server is killed under goes on")
			}
			continue
		}
		break
	}
	if killed == 0 {
		b.t.Fatal("nothing serves the sandbox")
	}
	if want := name + ": the server process of its files was killed"; !strings.Contains(said.String(), want) {
		b.t.Errorf("what ran in it ended with status %d, and %q was said", status, &said)
	}
}

// servers are the processes that listen, of those that show the sandbox's files: the one of
// what runs, and maybe another that a command before it has left, and that is about to end.
func (b *desk) servers() (pids []int) {
	b.t.Helper()
	sockets, _ := filepath.Glob(b.state + "/data/*/served/*")
	layers, _ := filepath.Glob(b.state + "/data/*/layers/*/ask")
	for _, path := range append(sockets, layers...) {
		p, err := fdsock.Dial(path)
		if err != nil {
			continue
		}
		gone := p.PeerEnding() // the one that was killed last
		peer, err := p.Peer()
		if err = errors.Join(err, p.Close()); err != nil && !gone {
			b.t.Fatal(err)
		}
		if !gone {
			pids = append(pids, peer.PID)
		}
	}
	return pids
}
