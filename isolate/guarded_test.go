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
		if landlock.ABI() < landlock.ExecuteABI {
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

// No process of another command traces a guarded program, reads its memory or executes it again: Landlock separates them.
func TestAGuardedProgramCannotBeTraced(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < landlock.ExecuteABI {
			treetest.Skip(t, "Landlock ABI 2", "the kernel is older")
		}
		spec, tool, _ := withTool(t, renewed(t, spec))
		spec.Execute = []string{afterLinks(t, "/usr/bin/sh"), afterLinks(t, "/usr/bin/python3")}
		spec.Guarded = []string{tool}
		container := open(t, spec)
		serveGuarded(t, container, tool, []string{"cat"})
		got := sh(t, container, "/usr/bin/python3 - "+tool+" << 'END'\n"+tracer+"END\n")
		want := "mem 13\nexe 13\nmaps 13\nenviron 13\nfd/0 13\nexecute 13\nattach 1\nseize 1\nread 1\nwritten x\n"
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s, want\n%s", got, want)
		}
	})
}

// tracer starts a guarded program, finds its process, which is not the stub, and prints the error numbers of what it
// tries on that.
const tracer = `import ctypes, os, subprocess, sys
p = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
p.stdin.write(b"x"); p.stdin.flush()
out = p.stdout.read(1)
def command(pid):
    try: return open("/proc/%s/cmdline" % pid, "rb").read()
    except OSError: return b""
real = [q for q in os.listdir("/proc") if q.isdigit() and command(q) == b"cat\0"][0]
for name, mode in (("mem", "r+b"), ("exe", "rb"), ("maps", "rb"), ("environ", "rb"), ("fd/0", "rb")):
    try:
        open("/proc/%s/%s" % (real, name), mode, buffering=0); print(name, "opened")
    except OSError as e: print(name, e.errno)
try: os.execv("/proc/%s/exe" % real, ["cat", "/etc/passwd"])
except OSError as e: print("execute", e.errno)
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace(16, int(real), 0, 0); print("attach", ctypes.get_errno())
libc.ptrace(0x4206, int(real), 0, 0); print("seize", ctypes.get_errno())
class iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
b = ctypes.create_string_buffer(8)
l = iovec(ctypes.cast(b, ctypes.c_void_p), 8); r = iovec(0x400000, 8)
libc.process_vm_readv(int(real), ctypes.byref(l), 1, ctypes.byref(r), 1, 0); print("read", ctypes.get_errno())
print("written", out.decode())
p.stdin.close(); p.wait()
`
