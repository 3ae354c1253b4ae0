//go:build linux

package treetest

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

func TestAsUserRunsWithoutRoot(t *testing.T) {
	if !AsUser(t) {
		return
	}
	if os.Geteuid() == 0 || os.Getuid() == 0 {
		t.Error("still root")
	}
	if _, err := os.ReadFile("/etc/shadow"); err == nil {
		t.Error("an ordinary user reads /etc/shadow")
	}
	Dir(t)
	name := os.Getenv("USER")
	if !strings.HasPrefix(name, prefix) && os.Getenv(usersEnv) == "" {
		return // somebody who is no user of ours runs the tests
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("HOME"), "x"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if sub, err := os.ReadFile("/etc/subuid"); err != nil || !strings.Contains(string(sub), name+":") {
		t.Errorf("no subordinate ids: %v", err)
	}
}

func TestSubtests(t *testing.T) {
	t.Run("of any name (even this.)", func(t *testing.T) {
		if AsUser(t) && os.Getuid() == 0 {
			t.Error("still root")
		}
	})
}

func TestFUSECanBeOpenedByAUser(t *testing.T) {
	NeedFS(t, "fuse")
	if os.Geteuid() == 0 {
		RunAs(t, User(t), t.Name(), WithFUSE(), WithEnv("SNAPFS_TEST_FUSE=1"))
		return
	}
	if os.Getenv("SNAPFS_TEST_FUSE") == "" {
		Skip(t, "root", "only root can make a node")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestNothingOfAUserStays(t *testing.T) {
	NeedRoot(t)
	var a Account
	t.Run("", func(t *testing.T) { a = newUser(t) })
	if _, err := user.Lookup(a.Name); err == nil {
		t.Error("the user is still there")
	}
	if _, err := os.Stat(filepath.Dir(a.Home)); err == nil {
		t.Error("its directory is still there")
	}
	sub, _ := os.ReadFile("/etc/subuid")
	if strings.Contains(string(sub), a.Name) {
		t.Error("its subordinate ids are still there")
	}
}

// A child that fails must fail its parent; here the child is told apart by its
// environment, and the parent by a recorder in place of a real test.
func TestVerdictIsNeverVacuous(t *testing.T) {
	for out, want := range map[string]bool{
		"--- PASS: TestX (0.0s)":               true,
		"testing: warning: no tests to run":    false,
		"--- PASS: TestXY (0.0s)":              false,
		"--- PASS: TestY (0.0s)\nTestX passed": false,
	} {
		probe := &testing.T{}
		verdict(probe, "TestX", out, nil)
		if probe.Failed() == want {
			t.Errorf("%q: passed %v", out, !want)
		}
	}
}
