//go:build linux

package treetest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/proc"
)

const (
	scratch = "/var/tmp"
	memory  = "/dev/shm" // for images of filesystems, as long as mkfs runs
	prefix  = "snapfs-test-"
)

// mark returns the beginning of the name of everything that a test makes on the machine, such as directories
// and users. It identifies this process, so that a later run can remove what a killed one left.
func mark() string {
	self, err := proc.Self()
	if err != nil {
		panic(err)
	}
	return prefix + strconv.FormatInt(int64(self.PID), 36) + "-" + strconv.FormatUint(self.Start, 36) + "-"
}

// owner returns the test process that made a directory, user or other object of this name; the beginning of
// the name identifies the process (see mark). It returns false for any other name.
func owner(name string) (proc.Process, bool) {
	parts := strings.SplitN(strings.TrimPrefix(name, prefix), "-", 3)
	if !strings.HasPrefix(name, prefix) || len(parts) < 3 {
		return proc.Process{}, false
	}
	pid, err1 := strconv.ParseInt(parts[0], 36, 32)
	start, err2 := strconv.ParseUint(parts[1], 36, 64)
	return proc.Process{PID: int(pid), Start: start}, err1 == nil && err2 == nil
}

var reaped sync.Once

// reapOnce removes the mounts, loop devices, images, directories and users that dead test
// processes left. An object that another test run removes at the same time is no error.
func reapOnce() {
	reaped.Do(func() {
		if os.Geteuid() != 0 {
			return
		}
		dead := func(path string) bool {
			rest, ok := strings.CutPrefix(path, scratch+"/")
			if !ok {
				rest, ok = strings.CutPrefix(path, memory+"/")
			}
			p, ok2 := owner(strings.SplitN(rest, "/", 2)[0])
			return ok && ok2 && !proc.Alive(p)
		}
		mounts, _ := mount.List()
		for i := len(mounts) - 1; i >= 0; i-- {
			if dead(mounts[i].Path) {
				_ = mount.Unmount(mounts[i].Path)
			}
		}
		left, _ := filepath.Glob(scratch + "/" + prefix + "*")
		unmade, _ := filepath.Glob(memory + "/" + prefix + "*")
		for _, path := range append(left, unmade...) {
			if dead(path) {
				_ = os.RemoveAll(path)
			}
		}
		for _, name := range userNames() {
			if p, ok := owner(name); ok && !proc.Alive(p) {
				_ = removeUser(context.Background(), name)
			}
		}
	})
}
