package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// built names the variable that hands the program, and the scripts beside it,
// on to a test that runs as another user.
const built = "SNAPFS_TEST_BUILT"

func TestMain(m *testing.M) { os.Exit(withProgram(m.Run)) }

// withProgram builds snapfs once, where every user may run it.
func withProgram(tests func() int) int {
	if os.Getenv(built) != "" {
		return tests()
	}
	dir, err := os.MkdirTemp("/var/tmp", "snapfs-cmd-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		_, err = run.Output(context.Background(), "go", "build", "-o", filepath.Join(dir, "snapfs"), ".")
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "script"), os.DirFS("testdata/script"))
	}
	if err == nil {
		err = copyFile("../../README.md", filepath.Join(dir, "README.md"))
	}
	if err == nil {
		err = os.Setenv(built, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

func program() string { return filepath.Join(os.Getenv(built), "snapfs") }

func TestCommandsAsRoot(t *testing.T) {
	treetest.NeedRoot(t)
	scripts(t)
}

func TestCommandsAsAnOrdinaryUser(t *testing.T) {
	if treetest.AsUser(t) {
		scripts(t)
	}
}

// scripts runs every script of testdata/script, in a workspace and with a state
// directory of its own. Each ends with nothing left of it.
func scripts(t *testing.T) {
	work := treetest.Dir(t)
	treetest.Leaks(t)
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join(os.Getenv(built), "script"),
		WorkdirRoot: work,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", os.Getenv(built)+":"+os.Getenv("PATH"))
			e.Setenv("SNAPFS_HOME", e.WorkDir+"/.state")
			e.Setenv("HOME", os.Getenv("HOME"))
			e.Defer(func() {
				d := &desk{t, e.Cd, e.WorkDir + "/.state"}
				d.clear()
				d.snapfs("pool", "rm") // where a script was given up
			})
			e.Cd = filepath.Join(e.WorkDir, "w")
			return os.MkdirAll(e.Cd, 0o755)
		},
		Condition: func(c string) (bool, error) {
			if c == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", c)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "untouched": untouched},
	})
}
