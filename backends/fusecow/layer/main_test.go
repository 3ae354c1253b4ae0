//go:build linux

package layer_test

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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	sysmount "github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	insideEnv      = "SNAPFS_TEST_FUSECOW_INSIDE"
	serveEnv       = "SNAPFS_TEST_FUSECOW_SERVE"
	copyUpLimitEnv = "SNAPFS_TEST_FUSECOW_WHOLE"
	indexesEnv     = "SNAPFS_TEST_FUSECOW_PLACES"
)

// TestMain runs the tests in a mount namespace that ends with them. Each mount has a server process of its own:
// a process that waits for a page of a mapped file that it serves itself would hang.
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

// serve mounts the layers what[2:] above the tree what[1] at what[0], read-only if there are no layers. It
// executes commands line by line, and exits cleanly at the end of its input.
func serve(what []string) error {
	whole, err := strconv.ParseInt(os.Getenv(copyUpLimitEnv), 10, 64)
	if err != nil {
		return err
	}
	o := layer.Options{Lower: what[1], Layers: what[2:], CopyUpLimit: whole, ReadOnly: len(what) == 2}
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
		switch what, path, _ := strings.Cut(in.Text(), " "); what {
		case "freeze":
			err = f.Freeze(path, func() error { return nil })
		case "hold":
			err = hold(f, path)
		case "switch":
			o.Layers, o.Indexes = strings.Split(path, " "), nil
			f, err = switchTo(server, o)
		default:
			err = f.Sync()
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

// A bench is a lower with layers, mounted by a server process.
type bench struct {
	testing.TB
	lower, mount string
	layers       []string
	indexes      []int // indexes of the layers; nil means one each
	made         int   // number of layers created so far, without the first
	copyUpLimit  int64
	server       *exec.Cmd
	in           io.WriteCloser
	out          *bufio.Reader
}

// newBench returns an unmounted bench with an empty lower and one empty layer.
func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchIn(t, treetest.Dir(t))
}

func newBenchIn(t testing.TB, dir string) *bench {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	treetest.Leaks(t, dir)
	b := &bench{TB: t, lower: dir + "/lower", mount: dir + "/mount", layers: []string{dir + "/layer0"}}
	for _, d := range []string{b.lower, b.mount} {
		b.must(os.Mkdir(d, 0o755))
	}
	t.Cleanup(b.kill)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// up mounts the tree.
func (b *bench) up() {
	b.Helper()
	places, err := json.Marshal(b.indexes)
	b.must(err)
	b.server = self(serveEnv+"="+strings.Join(append([]string{b.mount, b.lower}, b.layers...), "\n"), fmt.Sprintf("%s=%d", copyUpLimitEnv, b.copyUpLimit),
		indexesEnv+"="+string(places))
	b.server.Stderr = os.Stderr
	b.in, err = b.server.StdinPipe()
	b.must(err)
	out, err := b.server.StdoutPipe()
	b.must(err)
	b.out = bufio.NewReader(out)
	b.must(b.server.Start())
	b.expect("ready\n")
}

func (b *bench) expect(want string) {
	b.Helper()
	if line, err := b.out.ReadString('\n'); line != want {
		b.Fatalf("the server says %q, %v; want %q", line, err, want)
	}
}

func (b *bench) command(line string) {
	b.Helper()
	_, err := fmt.Fprintln(b.in, line)
	b.must(err)
	b.expect("done\n")
}

// stack returns the layers to merge.
func (b *bench) stack() logfile.Stack { return logfile.Stack{Layers: b.layers, Indexes: b.indexes} }

// freeze adds a layer while the tree is mounted.
func (b *bench) freeze() {
	b.Helper()
	next := b.nextLayer()
	b.command("freeze " + next)
	if b.indexes != nil {
		b.indexes = append(b.indexes, b.index(len(b.layers)-1)+1)
	}
	b.layers = append(b.layers, next)
}

func (b *bench) nextLayer() string {
	b.made++
	return fmt.Sprintf("%s/layer%d", filepath.Dir(b.mount), b.made)
}

// place returns the highest index of a layer.
func (b *bench) index(i int) int {
	if b.indexes == nil {
		return i
	}
	return b.indexes[i]
}

// down unmounts cleanly.
func (b *bench) down() {
	b.Helper()
	err := errors.Join(b.in.Close(), b.server.Wait())
	b.server = nil
	b.must(err)
}

// kill kills the server, if there is one, and removes the dead mount.
func (b *bench) kill() {
	if b.server == nil {
		return
	}
	b.must(b.server.Process.Kill())
	_ = b.server.Wait()
	b.server = nil
	// The server may have ended before it mounted.
	if err := unix.Unmount(b.mount, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		b.Error(err)
	}
}

// again remounts, after a crash or cleanly.
func (b *bench) again(crash bool) {
	b.Helper()
	if crash {
		b.kill()
	} else {
		b.down()
	}
	b.up()
}

// root opens the root of the mount. It must be closed before down.
func (b *bench) root() *os.File {
	b.Helper()
	f, err := os.Open(b.mount)
	b.must(err)
	return f
}

// at calls do with the root of the mount.
func (b *bench) at(do func(root *os.File)) {
	b.Helper()
	root := b.root()
	defer root.Close()
	do(root)
}

func (b *bench) write(path, text string) {
	b.Helper()
	b.must(os.WriteFile(path, []byte(text), 0o644))
}

func (b *bench) has(path, want string) {
	b.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		b.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

func (b *bench) ino(path string) uint64 {
	b.Helper()
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	b.must(err)
	return st.Ino
}
