//go:build linux

package treetest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

func TestEveryLeakIsNamed(t *testing.T) {
	NeedRoot(t)
	dir, disk := Dir(t), Btrfs(t)
	c := counter{places: []string{dir, disk}}
	must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	for what, make := range map[string]func() (undo func()){
		"descriptor": func() func() {
			f, err := os.Open("/dev/null")
			must(t, err)
			return func() { f.Close() }
		},
		"process": func() func() {
			// The shell ends at once; what it started is nobody's but ours.
			out, err := run.Output(t.Context(), "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
			must(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
			must(t, err)
			return func() { must(t, unix.Kill(pid, unix.SIGKILL)) }
		},
		"mount": func() func() {
			m, err := mount.CloneTree(dir)
			must(t, err)
			must(t, mount.MoveMount(m, dir))
			m.Close()
			return func() { must(t, mount.Unmount(dir)) }
		},
		"loop device": func() func() {
			f, err := os.Create(filepath.Join(dir, "image"))
			must(t, err)
			must(t, f.Truncate(1<<20))
			loop, err := loopdev.Attach(f)
			must(t, err)
			f.Close()
			return func() { loop.Close() }
		},
		"subvolume": func() func() {
			path := filepath.Join(disk, "sub")
			_, err := run.Output(t.Context(), "btrfs", "subvolume", "create", path)
			must(t, err)
			return func() { must(t, os.Remove(path)) }
		},
		"control group": func() func() {
			groups, err := hostinfo.CgroupRoots()
			must(t, err)
			path := filepath.Join(groups[0].Path, "snapfs-leak-"+strconv.Itoa(os.Getpid()))
			must(t, os.Mkdir(path, 0o755))
			return func() { must(t, os.Remove(path)) }
		},
	} {
		before := c.count()
		undo := make()
		left := c.wait(before, 0)
		if !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, what) }) {
			t.Errorf("a %s was not noticed: %q", what, left)
		}
		undo()
		if left := c.wait(before, 5*time.Second); len(left) != 0 {
			t.Errorf("a %s that is gone was noticed: %q", what, left)
		}
	}
}

func TestFilesystemsLeaveNothing(t *testing.T) {
	NeedRoot(t)
	Leaks(t)
	t.Run("", func(t *testing.T) {
		for _, fs := range []string{"btrfs", "ext4", "tmpfs"} {
			dir := Small(t, fs, 64<<20)
			if got, err := mount.FilesystemOf(dir); err != nil || got.Type != fs || got.Size > 64<<20 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		User(t)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
