//go:build linux

package fusecow

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

const (
	wakeEnv     = "SNAPFS_TEST_FUSECOW_WAKE"      // the socket at which the stopped process listens
	wakeOpenEnv = "SNAPFS_TEST_FUSECOW_WAKE_OPEN" // set if it does not close the connection
)

// TestWakeContinuesOnlyTheServer: a stopped process with the server's pid is continued only while the
// connection to the server is open, because only then it is the server.
func TestWakeContinuesOnlyTheServer(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if path := os.Getenv(wakeEnv); path != "" { // the process to be stopped
		socket, err := fdsock.Listen(path)
		must(t, err)
		p, err := socket.Accept()
		must(t, err)
		if os.Getenv(wakeOpenEnv) == "" {
			must(t, p.Close())
		}
		must(t, unix.Kill(os.Getpid(), unix.SIGSTOP))
		// The kernel may deliver the signal to another thread, and this one runs on until that one is scheduled. So it
		// waits until the test ends: without a wait the process would sometimes exit instead of being stopped.
		if os.Getenv(wakeOpenEnv) != "" {
			_, _, _ = p.Receive()
		} else {
			_, _ = socket.Accept()
		}
		return
	}
	self, err := os.Executable()
	must(t, err)
	for name, open := range map[string]string{"its server": "yes", "another": ""} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			path := filepath.Join(t.TempDir(), "ask")
			t.Setenv(wakeEnv, path)
			t.Setenv(wakeOpenEnv, open)
			child, err := run.Background([]string{self, "-test.run=^TestWakeContinuesOnlyTheServer$"}, nil)
			must(t, err)
			defer func() {
				must(t, child.Kill())
				_, err := child.Wait()
				must(t, err)
			}()
			var p *fdsock.Conn
			must(t, poll.Until(ctx, time.Millisecond, 50*time.Millisecond, func() (bool, error) {
				var err error
				p, err = fdsock.Dial(path) // an error: it does not listen yet
				return err == nil, nil
			}))
			defer p.Close()
			server, err := p.Peer()
			must(t, err)
			must(t, poll.Until(ctx, time.Millisecond, 50*time.Millisecond, func() (bool, error) {
				return proc.Stopped(server), nil
			}))
			wake(p)
			if stopped := proc.Stopped(server); stopped != (open == "") {
				t.Errorf("the process is stopped: %t", stopped)
			}
		})
	}
}
