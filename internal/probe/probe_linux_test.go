package probe_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/probe"
	"github.com/snapfs/snapfs/internal/treetest"
)

// ask runs all probes for dir and answers with the results by name.
func ask(t *testing.T, dir string) map[string]probe.Result {
	t.Helper()
	results := map[string]probe.Result{}
	start := time.Now()
	for _, p := range probe.All(dir) {
		began := time.Now()
		r := p.Run(t.Context())
		t.Logf("%-28s %-8v %-60s %q %v", p.Name, r.Answer, r.Why, r.Fix, time.Since(began).Round(10*time.Microsecond))
		if _, twice := results[p.Name]; twice || p.What == "" {
			t.Errorf("%s: twice, or without a purpose", p.Name)
		}
		if r.Answer != probe.Yes && r.Why == "" {
			t.Errorf("%s: %v without a reason", p.Name, r.Answer)
		}
		if strings.HasSuffix(r.Why, ".") || strings.Contains(r.Why, "failed") {
			t.Errorf("%s: %q", p.Name, r.Why)
		}
		results[p.Name] = r
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("all probes took %v", d)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return results
}

func TestProbesAsRootFindWhatTheOtherTestsUse(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay", "btrfs")
	disk := treetest.Ext4(t, 64<<20)
	if err := os.Remove(disk + "/lost+found"); err != nil {
		t.Fatal(err)
	}
	treetest.Leaks(t)
	results := ask(t, disk)
	for _, name := range []string{
		"mount api", "overlay", "overlay features", "id-mapped mounts", "overlay on id-mapped layers",
		"btrfs", "mkfs.btrfs", "loop devices", "seccomp", "no new privileges", "pidfd", "network namespaces", "user xattrs",
	} {
		if results[name].Answer != probe.Yes {
			t.Errorf("%s: %+v", name, results[name])
		}
	}
	if r := results["reflink"]; r.Answer != probe.No {
		t.Errorf("ext4 has reflinks: %+v", r)
	}
}

func TestProbesAsAnOrdinaryUserFindWhatUsersLack(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	results := ask(t, treetest.Dir(t))
	for _, name := range []string{"overlay", "id-mapped mounts", "loop devices"} {
		if results[name].Answer != probe.No {
			t.Errorf("%s: %+v", name, results[name])
		}
	}
	if userns := results["user namespaces"]; userns.Answer == probe.Yes && results["network namespaces"].Answer != probe.Yes {
		t.Errorf("network namespaces: %+v", results["network namespaces"])
	}
}

func TestProbesOfAPlaceThatCannotBeWrittenAreUnknown(t *testing.T) {
	for _, p := range probe.All("/proc/nothing/here") {
		if r := p.Run(t.Context()); p.Name == "user xattrs" && r.Answer != probe.Unknown {
			t.Errorf("%+v", r)
		}
	}
}

func TestAProbeAsksForADirectoryThatIsStillToBeMade(t *testing.T) {
	dir := treetest.Dir(t)
	ask(t, dir+"/not/yet")
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
