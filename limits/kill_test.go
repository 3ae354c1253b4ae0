package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestKillEndsFrozenProcesses: in version 1 a frozen process takes no signal.
func TestKillEndsFrozenProcesses(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 200}, Options{})
	b := newChild(t, g, "fork 20", nil).begin()
	b.line()
	for _, m := range g.members {
		if m.has("freezer") {
			must(t, m.write("freezer.state", "FROZEN"))
		} else if m.version == 2 {
			must(t, m.write("cgroup.freeze", "1"))
		}
	}
	must(t, g.kill(t.Context()))
	b.ends()
	must(t, g.kill(t.Context())) // without processes
	closes(t, g)
}

// TestKillOneByOne tests the way for kernels without cgroup.kill.
func TestKillOneByOne(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 400}, Options{})
	b := newChild(t, g, "fork 200", nil).begin()
	b.line()
	must(t, until(t.Context(), func() (bool, error) { return empty(g.members), killOneByOne(g.members) }))
	b.ends()
	closes(t, g)
}

func TestSweepRemovesOnlyGroupsOfDeadSupervisors(t *testing.T) {
	t.Run("here", func(t *testing.T) { sweeps(t, "supervisor", nil) })
	// Its pid there is another process's here, or free.
	t.Run("in another pid namespace", func(t *testing.T) {
		sweeps(t, "namespaced", &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS})
	})
}

// sweeps lets a supervisor create a group, and kills it.
func sweeps(t *testing.T, role string, attr *unix.SysProcAttr) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	mine := started(t, Limits{PIDs: 100}, Options{})
	none, err := Start(t.Context(), "none", Limits{}, Options{})
	must(t, err)
	supervisor := newChild(t, none, role, attr).begin()
	said := strings.Fields(supervisor.line())
	if len(said) < 2 {
		t.Fatal(said)
	}
	must(t, Sweep(t.Context()))
	for _, dir := range said[1:] {
		if _, err := os.Stat(dir); err != nil {
			t.Fatal("swept while its supervisor lives:", err)
		}
	}
	// A directory of another program, with a name that is almost one of ours.
	other := filepath.Join(filepath.Dir(said[1]), fmt.Sprintf("snapfs-other-%d", os.Getpid()))
	must(t, os.Mkdir(other, 0o755))
	t.Cleanup(func() { _ = os.Remove(other) }) // if the test failed before
	for _, dir := range said[1:] {             // as for a frozen sandbox; not for a namespace, which ends with its processes
		for file, value := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil && attr == nil {
				must(t, os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644))
			}
		}
	}
	must(t, supervisor.cmd.Process.Kill())
	supervisor.ends()
	// Pid 1 of another test's container may have begun in the same clock tick. For as long as it
	// lives, this supervisor may be alive, too.
	remaining := slices.Clone(said[1:])
	for began := time.Now(); len(remaining) > 0 && time.Since(began) < time.Minute; {
		must(t, Sweep(t.Context()))
		remaining = slices.DeleteFunc(remaining, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
	}
	for _, dir := range remaining {
		t.Error("left:", dir)
	}
	if _, err := os.Stat("/proc/" + said[0] + "/exe"); err == nil && attr == nil {
		t.Error("the process in it lives")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("swept without a mark:", err)
	}
	must(t, os.Remove(other))
	for _, m := range mine.members {
		if _, err := os.Stat(m.path); err != nil {
			t.Error("swept while its supervisor lives:", err)
		}
	}
	must(t, none.Close(t.Context()))
	closes(t, mine)
}
