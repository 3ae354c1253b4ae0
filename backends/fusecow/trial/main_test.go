//go:build linux

package trial_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	sysmount "github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

const (
	insideEnv  = "SNAPFS_TEST_TRIAL_INSIDE"
	serveEnv   = "SNAPFS_TEST_TRIAL_SERVE"
	wholeEnv   = "SNAPFS_TEST_TRIAL_WHOLE"
	indexesEnv = "SNAPFS_TEST_TRIAL_PLACES"
)

// TestMain runs the tests in a mount namespace that ends with them. Each mount has a server process, which can
// be killed and which maps none of its own files.
func TestMain(m *testing.M) {
	if what := os.Getenv(serveEnv); what != "" {
		os.Exit(status(serve(strings.Split(what, "\n"))))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(insideEnv) == "" {
		cmd := self(insideEnv + "=1")
		cmd.Args = os.Args
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		os.Exit(status(cmd.Run()))
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		os.Exit(status(err))
	}
	os.Exit(m.Run())
}

func status(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// self returns a command that runs this program with more variables, and is killed with this process.
func self(env ...string) *exec.Cmd {
	runtime.LockOSThread() // the signal is sent when the thread ends
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// A goTo is a command to a server: to freeze, or to switch to another stack.
type goTo struct {
	Freeze  string   `json:"freeze,omitempty"`
	Layers  []string `json:"layers,omitempty"`
	Indexes []int    `json:"places,omitempty"`
}

// serve mounts what[1:] at what[0], executes commands line by line, and exits cleanly at the end of its input.
func serve(what []string) error {
	whole, err := strconv.ParseInt(os.Getenv(wholeEnv), 10, 64)
	if err != nil {
		return err
	}
	o := layer.Options{Lower: what[1], Layers: what[2:], CopyUpLimit: whole}
	if err := json.Unmarshal([]byte(os.Getenv(indexesEnv)), &o.Indexes); err != nil {
		return err
	}
	f, err := layer.Open(o)
	if err != nil {
		return err
	}
	server, root, err := mount.New(f, layer.Whole, 0)
	if err != nil {
		return err
	}
	err = sysmount.MoveMount(root, what[0])
	root.Close()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var to goTo
		if err := json.Unmarshal(in.Bytes(), &to); err != nil {
			return err
		}
		if to.Freeze != "" {
			err = f.Freeze(to.Freeze, func() error { return nil })
		} else if err = server.Flush(); err == nil {
			o.Layers, o.Indexes = to.Layers, to.Indexes
			if f, err = layer.Open(o); err == nil {
				err = server.Switch(f, func() error { return nil })
			}
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "done")
	}
	if err := unix.Unmount(what[0], 0); err != nil {
		return err
	}
	server.Wait()
	server.Close()
	return f.Close()
}

// A stack is layers with their indexes; nil means one each.
type stack struct {
	layers  []string
	indexes []int
}

// place returns the highest index of a layer.
func (s *stack) index(i int) int {
	if s.indexes == nil {
		return i
	}
	return s.indexes[i]
}

// above returns a copy of the stack with one more layer.
func (s *stack) above(layer string) stack {
	next := stack{layers: append(slices.Clone(s.layers), layer)}
	if s.indexes != nil {
		next.indexes = append(slices.Clone(s.indexes), s.index(len(s.layers)-1)+1)
	}
	return next
}

// A host is a lower with layers, mounted by a server process.
type host struct {
	testing.TB
	dir, lower, mount string
	stack
	made   int // number of layers ever created
	whole  int64
	server *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
}

// newHost returns an unmounted host with an empty lower and one layer that does not exist yet.
func newHost(t testing.TB) *host {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	dir := treetest.Dir(t)
	treetest.Leaks(t, dir)
	h := &host{TB: t, dir: dir, lower: dir + "/lower", mount: dir + "/mount"}
	for _, d := range []string{h.lower, h.mount} {
		h.must(os.Mkdir(d, 0o755))
	}
	h.layers = []string{h.nextLayer()}
	t.Cleanup(h.kill)
	return h
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) nextLayer() string {
	h.made++
	return filepath.Join(h.dir, fmt.Sprintf("layer%d", h.made))
}

// up checks the layers and mounts them, whatever state they were left in. A server in which the race detector
// fires exits at once.
func (h *host) up() {
	h.Helper()
	if logfile.IsLayer(h.layers[len(h.layers)-1]) {
		found, err := layer.Check(layer.Options{Lower: h.lower, Layers: h.layers, Indexes: h.indexes}, false)
		h.must(err)
		for _, p := range found {
			h.Error(p)
		}
	}
	places, err := json.Marshal(h.indexes)
	h.must(err)
	h.server = self(serveEnv+"="+strings.Join(append([]string{h.mount, h.lower}, h.layers...), "\n"),
		fmt.Sprintf("%s=%d", wholeEnv, h.whole), indexesEnv+"="+string(places), "GORACE=halt_on_error=1 atexit_sleep_ms=0", "GOGC=400")
	h.server.Stderr = os.Stderr
	h.in, err = h.server.StdinPipe()
	h.must(err)
	out, err := h.server.StdoutPipe()
	h.must(err)
	h.out = bufio.NewReader(out)
	h.must(h.server.Start())
	h.hear("ready\n")
}

func (h *host) hear(want string) {
	h.Helper()
	if line, err := h.out.ReadString('\n'); line != want {
		h.Fatalf("the server says %q, %v; want %q", line, err, want)
	}
}

// freeze adds a layer while the tree is mounted.
func (h *host) freeze() {
	h.Helper()
	next := h.nextLayer()
	h.tell(goTo{Freeze: next})
	h.stack = h.above(next)
}

// goOn switches to another stack while the tree is mounted.
func (h *host) goOn(s stack) {
	h.Helper()
	h.tell(goTo{Layers: s.layers, Indexes: s.indexes})
	h.stack = s
}

func (h *host) tell(what goTo) {
	h.Helper()
	h.must(json.NewEncoder(h.in).Encode(what))
	h.hear("done\n")
}

// down unmounts cleanly.
func (h *host) down() {
	h.Helper()
	err := errors.Join(h.in.Close(), h.server.Wait())
	h.server = nil
	h.must(err)
}

// kill kills the server, if there is one, and removes the dead mount.
func (h *host) kill() {
	h.Helper()
	if h.server == nil {
		return
	}
	h.must(h.server.Process.Kill())
	_ = h.server.Wait()
	h.server = nil
	// The server may have ended before it mounted.
	if err := unix.Unmount(h.mount, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		h.Error(err)
	}
}
