package engine_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise/connpool"
	"github.com/snapfs/snapfs/isolate"
)

// sockets returns the sockets that this process has open, each by its inode.
func sockets(t *testing.T) (list []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "socket:") {
			list = append(list, to)
		}
	}
	slices.Sort(list)
	return list
}

// TestCommandsFollowEachOtherOnAConnection runs commands in one sandbox from one process, whose connections to the
// supervisor stay open: each has its own status, output and signals, whatever became of the one before it.
func TestCommandsFollowEachOtherOnAConnection(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		connections := new(connpool.Pool)
		t.Cleanup(connections.Close)
		var err error
		b.Engine, err = engine.Open(t.Context(), engine.Config{State: b.state, Drivers: drivers(), Supervisor: []string{"/proc/self/exe", "keeper"}, Connections: connections})
		if err != nil {
			t.Fatal(err)
		}
		req := b.request()
		req.Name = "s"
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		b.removeLater("s")
		k := b.talk("s") // the container lives on
		run := func(script string, signals ...syscall.Signal) (string, isolate.Status) {
			said, out, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return "", isolate.Status{}
			}
			defer said.Close()
			c := b.command(script)
			c.Stdout = out
			p, err := b.Supervise.Exec(t.Context(), "s", c)
			out.Close()
			if err != nil {
				t.Error(err)
				return "", isolate.Status{}
			}
			for _, sig := range signals {
				if err := p.SignalGroup(sig); err != nil {
					t.Error(err)
				}
			}
			text, err := io.ReadAll(said)
			if err != nil {
				t.Error(err)
			}
			st, err := p.Wait(t.Context())
			if err != nil {
				t.Error(err)
			}
			if err := p.SignalGroup(syscall.SIGKILL); err != nil { // it has ended: no other command may get the signal
				t.Error(err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			return string(text), st
		}
		without := sockets(t)
		run("true")
		before := sockets(t)
		if len(before) != len(without)+1 {
			t.Errorf("the sockets %v are open after a command, %v before", before, without)
		}
		for i := range 5 {
			if text, st := run(fmt.Sprintf("echo %d; exit %d", i, i)); text != fmt.Sprintf("%d\n", i) || st != (isolate.Status{Code: i}) {
				t.Errorf("command %d: %q, %+v", i, text, st)
			}
		}
		if _, st := run("exec sleep 600", syscall.SIGTERM); st.Signal != syscall.SIGTERM {
			t.Errorf("after SIGTERM: %+v", st)
		}
		if after := sockets(t); !slices.Equal(after, before) {
			t.Errorf("the sockets %v are open, %v before", after, before)
		}
		if _, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{Args: []string{"/missing"}, Dir: b.workspace}); err == nil {
			t.Error("a missing program was started")
		}
		p, err := b.Supervise.Exec(t.Context(), "s", b.command("exec sleep 600"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil { // gone before the command's end, which it thereby gets
			t.Error(err)
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if text, st := run(fmt.Sprintf("echo %d; exit %d", i, i)); text != fmt.Sprintf("%d\n", i) || st != (isolate.Status{Code: i}) {
					t.Errorf("command %d beside others: %q, %+v", i, text, st)
				}
			})
		}
		all.Wait()
		k.say()
		k.hears("1")
		if err := errors.Join(b.Supervise.Stop(t.Context(), "s"), k.Close()); err != nil {
			t.Fatal(err)
		}
		if text, st := run("echo new"); text != "new\n" || st != (isolate.Status{}) { // by another supervisor
			t.Errorf("after a stop: %q, %+v", text, st)
		}
	})
}
