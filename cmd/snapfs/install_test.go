package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// Cost: half a second.
func TestWhatIsInstalledWorksAndIsRemoved(t *testing.T) {
	treetest.OncePerRun(t)
	treetest.NeedProgram(t, "make")
	treetest.NeedDevice(t, "/dev/net/tun")
	treetest.Leaks(t)
	dest := treetest.Dir(t)
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "SNAPFS_HOME="+dest+"/state", "PATH=/usr/local/bin:/usr/bin:/bin")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	targets := []string{"-C", "../..", "BUILT=" + treetest.Built(), "DESTDIR=" + dest, "PREFIX=/usr"}
	run("make", append(targets, "install")...)
	installed := filepath.Join(dest, "usr/bin/snapfs")
	work := treetest.Dir(t)
	run(installed, "run", "-C", work, "--net", "allow:example.org", "--", "true") // starts snapfs-edge
	run(installed, "mcp", "-C", work)                                             // starts snapfs-serve, without input
	for _, path := range []string{"share/man/man1/snapfs-run.1", "share/bash-completion/completions/snapfs"} {
		if info, err := os.Stat(filepath.Join(dest, "usr", path)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	run("make", append(targets, "uninstall")...)
	err := filepath.WalkDir(filepath.Join(dest, "usr"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("%s is still there", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
