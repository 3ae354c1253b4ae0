package run_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

const mortalEnv = "SNAPFS_TEST_MORTAL"

// TestMortalProgramEndsWithItsParent, however the parent is killed, and not before.
func TestMortalProgramEndsWithItsParent(t *testing.T) {
	if pid := os.Getenv(mortalEnv); pid != "" {
		p := shell("echo $$ > " + pid + "; exec sleep 100")
		p.Mortal = true
		t.Fatal(run.Run(t.Context(), p))
	}
	pid := filepath.Join(treetest.Dir(t), "pid")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	maker, err := os.StartProcess(self, []string{self, "-test.run=^" + t.Name() + "$"}, &os.ProcAttr{
		Env: append(os.Environ(), mortalEnv+"="+pid), Files: []*os.File{null, null, null},
	})
	if err != nil {
		t.Fatal(err)
	}
	alive(t, pid, true)
	time.Sleep(50 * time.Millisecond)
	alive(t, pid, true)
	if err := maker.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := maker.Wait(); err != nil {
		t.Fatal(err)
	}
	alive(t, pid, false)
}
