package promote_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestPowerLostAtAnyCallLeavesTheOldTreeOrTheNew kills a promotion at each call that changes
// anything, and recovers on a copy of the disks that has only what the promotion synced.
// Target and state directory are on one disk, or on two independent ones.
func TestPowerLostAtAnyCallLeavesTheOldTreeOrTheNew(t *testing.T) {
	for _, disks := range [][]string{{"ext4"}, {"btrfs"}, {"ext4", "btrfs"}, {"btrfs", "ext4"}} {
		for _, command := range []string{"apply", "undo"} {
			t.Run(fmt.Sprint(disks, command), func(t *testing.T) { cutEverywhere(t, command, disks) })
		}
	}
}

func cutEverywhere(t *testing.T, command string, disks []string) {
	var all []*treetest.Disk
	for _, fs := range disks {
		all = append(all, treetest.NewDisk(t, fs))
	}
	c := &crash{t: t, top: all[0].Dir, but: runtimes + " " + reads, calls: tally{}}
	if len(all) > 1 {
		c.state = all[1].Dir
	}
	c.fresh()
	step, news, olds := treetest.Budget(t, 45, 5), 0, 0 // odd: each disk in turn is ahead
	for n := 1; ; n += step {
		if command == "undo" {
			if list, err := promote.Promotions(c.w.state()); err != nil || len(list) == 0 {
				must(t, err)
				c.w.promoted(t, "s", c.w.frozen())
			}
		}
		for _, d := range all {
			syncDisk(t, d)
		}
		killed := c.kill(command, n)
		if len(all) > 1 {
			syncDisk(t, all[n%2]) // one of the disks is ahead
		}
		var restore []func()
		for _, d := range all {
			restore = append(restore, d.CutPower(t))
		}
		if c.recovered(fmt.Sprint("power lost in ", command, " at call ", n)) {
			news++
		} else {
			olds++
		}
		for _, f := range restore {
			f()
		}
		if c.recovered(fmt.Sprint(command, ", call ", n)) && command == "apply" {
			c.fresh()
		}
		if !killed {
			break
		}
	}
	t.Logf("%v, %s: %d times the old tree and %d times the new one, lost at %v", disks, command, olds, news, c.calls)
	if olds == 0 || news == 0 {
		t.Error("it was always the same")
	}
}

// sync writes everything to the disk.
func syncDisk(t *testing.T, d *treetest.Disk) {
	t.Helper()
	f, err := os.Open(d.Dir)
	must(t, err)
	defer f.Close()
	must(t, unix.Syncfs(int(f.Fd())))
}

// stateOn puts the state directory of a world on another disk.
func (c *crash) stateOn() {
	if c.state == "" {
		return
	}
	dir := filepath.Join(c.state, filepath.Base(c.w.top))
	must(c.t, os.Mkdir(dir, 0o700))
	must(c.t, os.Symlink(dir, c.w.state()))
}
