//go:build linux

package isolate

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/landlock"
	"github.com/snapfs/snapfs/isolate/stub"
)

// serveGuarded executes the guarded program at path, with these arguments, for each stub in the container.
func serveGuarded(t *testing.T, c *Container, path string, args []string) {
	t.Helper()
	socket, err := c.ListenForGuarded()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = socket.Shutdown()
		<-done
		_ = socket.Close()
	})
	go func() {
		defer close(done)
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			reply := stub.Exit(1, "refused\n")
			if _, files, err := conn.Receive(); err == nil && len(files) == stub.Files {
				p, err := c.Exec(t.Context(), Command{
					Args: args, Env: []string{"A=b"}, Guarded: path, DirFile: files[0], Stdin: files[1], Stdout: files[2], Stderr: files[3],
				})
				fdsock.CloseAll(files)
				if err != nil {
					reply = stub.Exit(126, err.Error()+"\n")
				} else if st, err := p.Wait(t.Context()); err == nil {
					reply = stub.Exit(st.ExitCode(), "")
				}
			}
			_ = conn.Send(reply.Message())
			_ = conn.Close()
		}
	}()
}

// A guarded program can neither be executed nor read, whatever a process does, and the supervisor can execute it.
func TestOnlyTheSupervisorExecutesAGuardedProgram(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < executeABI {
			treetest.Skip(t, "Landlock ABI 2", "the kernel is older")
		}
		spec, tool, _ := withTool(t, renewed(t, spec))
		python := afterLinks(t, "/usr/bin/python3")
		spec.Execute = []string{afterLinks(t, "/usr/bin/sh"), "/usr/bin/cp", "/usr/bin/mv", "/usr/bin/rm", "/usr/bin/ln", "/usr/bin/cmp", python}
		spec.Guarded = []string{tool}
		container := open(t, spec)
		serveGuarded(t, container, tool, []string{"cat", "/proc/self/cmdline", "/proc/self/environ", "f"})
		got := sh(t, container, "cd /tmp; echo file > f; cat() { "+tool+" x y; }; cat; echo $?; cat | cmp -n 3 - /dev/zero >&2; "+tool+" >&-; echo $?")
		if !strings.Contains(got, "/proc/self/environ\x00f\x00A=b\x00file\n0") {
			t.Errorf("%q", got)
		}
		for _, script := range []string{
			"echo x >> " + tool, "rm -f " + tool, "mv " + tool + " " + tool + "2", "ln " + tool + " " + tool + "2", ": > " + tool,
			"cp " + tool + " /tmp/copy; cmp /tmp/copy /usr/bin/cat",
			"/lib64/ld-linux-x86-64.so.2 /usr/bin/cat /etc/passwd >/dev/null && /lib64/ld-linux-x86-64.so.2 " + tool,
		} {
			if got := ran(t, container, script); got == "0" {
				t.Errorf("%s: it was done", script)
			}
		}
	})
}
