//go:build linux && suites

package suites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A ground is where units run: a directory for their workspaces on each disk, and a state directory.
type ground struct {
	t     *testing.T
	user  string // "root" or "user"
	disks map[string]string
	state string
	logs  string // where the output of each unit is written, if not empty

	runs atomic.Int64
	mu   sync.Mutex
	bare map[string]*sync.Mutex // held while the unit runs on the bare disk
	done map[string]results     // on the bare disk
}

// newGround mounts an ext4 and a btrfs for root. An ordinary user's workspaces are on the disk of the machine.
func newGround(t *testing.T) *ground {
	t.Helper()
	dir := treetest.Dir(t)
	g := &ground{t: t, user: "user", state: dir + "/state", logs: os.Getenv("SNAPFS_SUITES_LOGS"), bare: map[string]*sync.Mutex{}, done: map[string]results{}}
	g.disks = map[string]string{"": dir}
	if os.Geteuid() == 0 {
		g.user = "root"
		// A short path: pjdfstest binds sockets below it, whose paths have at most 107 bytes.
		short, err := os.MkdirTemp("", "")
		if err == nil {
			t.Cleanup(func() { os.RemoveAll(short) })
			err = os.Chmod(short, 0o755) // some tests of root's go on as another user
		}
		if err != nil {
			t.Fatal(err)
		}
		g.disks = map[string]string{"": newDisk(t, "ext4", short+"/e"), "btrfs": newDisk(t, "btrfs", short+"/b")}
	}
	t.Cleanup(g.clean)
	return g
}

// newDisk mounts a fresh filesystem of 3 GiB at dir until the test ends.
func newDisk(t *testing.T, fs, dir string) string {
	t.Helper()
	image := filepath.Join(treetest.Dir(t), fs)
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = errors.Join(os.Truncate(image, 3<<30), os.Mkdir(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Output(t.Context(), "mkfs."+fs, "-q", image); err != nil {
		t.Fatal(err)
	}
	treetest.MountImage(t, fs, image, dir)
	return dir
}

// places returns the sandboxes in which units run, each by the user and the backend.
func (g *ground) places() []string {
	if g.user == "root" {
		return asRoot
	}
	return []string{"user/overlay", "user/fusecow", "user/fusecow-overlay"}
}

// clean empties the state directory: what a command left in the background may still write to it.
func (g *ground) clean() {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, err := g.command(context.Background(), "/", treetest.Program(), "gc").CombinedOutput()
		if err == nil {
			err = os.RemoveAll(g.state)
		}
		if err == nil {
			return
		}
		if time.Since(start) > time.Minute {
			g.t.Errorf("gc: %v\n%s", err, out)
			return
		}
	}
}

func (g *ground) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SNAPFS_HOME="+g.state)
	return cmd
}

// compare runs a unit in a sandbox of the place, and on the bare disk if it has not yet, and returns what is wrong.
func (g *ground) compare(list []difference, u unit, place string) (counts string, lines []string, err error) {
	_, backend, _ := strings.Cut(place, "/")
	bare, err := g.onBareDisk(u, backend)
	if err != nil {
		return "", nil, fmt.Errorf("on the bare disk: %w", err)
	}
	inside, err := g.run(u, backend, true)
	if err != nil {
		return "", nil, err
	}
	differ := 0
	for test := range bare {
		if bare.of(test) != inside.of(test) {
			differ++
		}
	}
	count := map[status]int{}
	for _, s := range inside {
		count[s]++
	}
	counts = fmt.Sprintf("%d tests, %d passed, %d failed, %d skipped, %d differ", len(inside), count[passed], count[failed], count[skipped], differ)
	return counts, wrong(list, place, u.name, bare, inside), nil
}

// onBareDisk returns a unit's results on the disk of a backend's workspaces, without a sandbox. It runs the unit
// once for each disk.
func (g *ground) onBareDisk(u unit, backend string) (results, error) {
	disk := backend
	if g.disks[backend] == "" {
		disk = ""
	}
	key := disk + "/" + u.name
	g.mu.Lock()
	once := g.bare[key]
	if once == nil {
		once = &sync.Mutex{}
		g.bare[key] = once
	}
	g.mu.Unlock()
	once.Lock()
	defer once.Unlock()
	g.mu.Lock()
	r := g.done[key]
	g.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := g.run(u, disk, false)
	if err == nil {
		g.mu.Lock()
		g.done[key] = r
		g.mu.Unlock()
	}
	return r, err
}

// forget makes the next onBareDisk run the unit again.
func (g *ground) forget(u unit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for disk := range g.disks {
		delete(g.done, disk+"/"+u.name)
	}
}

// clear is the environment of a script: the same on the bare disk and in a sandbox, which filters variables.
const clear = `
mkdir tmp
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$PWD" TMPDIR="$PWD/tmp" LC_ALL=C.UTF-8 timeout --kill-after=5 280 sh -euc "$1"`

// run runs a unit in a workspace of its own, in a sandbox of the backend or on the bare disk of that backend.
func (g *ground) run(u unit, backend string, sandboxed bool) (results, error) {
	disk := g.disks[backend]
	if disk == "" {
		disk = g.disks[""]
	}
	// A short name: tests bind sockets below it, whose paths have at most 107 bytes.
	dir := filepath.Join(disk, strconv.FormatInt(g.runs.Add(1), 36))
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Mkdir(dir, 0o755), u.lay(dir)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	args := []string{"sh", "-euc", clear, "sh", u.script}
	if sandboxed {
		args = append([]string{treetest.Program(), "run", "-q", "--discard", "--backend", backend, "-C", dir, "--"}, args...)
	}
	var out bytes.Buffer
	cmd := g.command(ctx, dir, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if g.logs != "" {
		name := strings.ReplaceAll(u.name, "/", "-") + "." + g.user + "-" + backend + map[bool]string{false: "-bare", true: ""}[sandboxed]
		_ = os.WriteFile(filepath.Join(g.logs, name), out.Bytes(), 0o644)
	}
	r, wrong := u.parse(out.String())
	if err = errors.Join(err, wrong); err != nil {
		text := out.String()
		return nil, fmt.Errorf("%s: %w\n%s", u.name, err, text[max(0, len(text)-4000):])
	}
	return r, nil
}
