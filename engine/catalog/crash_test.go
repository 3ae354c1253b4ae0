package catalog_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
)

const childState = "SNAPFS_TEST_STATE"

// TestChild is the process that the tests below start: it begins an operation and is killed.
func TestChild(t *testing.T) {
	dir := os.Getenv(childState)
	if dir == "" {
		return
	}
	c, err := catalog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Begin(catalog.Making, "victim", "id1"); err != nil {
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Kill(); err != nil {
		t.Fatal(err)
	}
	select {}
}

func TestAKilledProcessLeavesItsIntent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	c, err := catalog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := c.Begin(catalog.Removing, "mine", "id2")
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), childState+"="+dir)
	if err := child.Run(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child was not killed: %v", err)
	}
	for _, thorough := range []bool{false, true} {
		stale, err := c.Stale(thorough)
		if err != nil || len(stale) != 1 || stale[0].What != catalog.Making || stale[0].Name != "victim" {
			t.Fatalf("thorough %v: got %v, %v; want what the child was at", thorough, stale, err)
		}
	}
	stale, err := c.Stale(false)
	if err != nil {
		t.Fatal(err)
	}
	if err := stale[0].End(); err != nil {
		t.Fatal(err)
	}
	if err := mine.End(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "active")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
