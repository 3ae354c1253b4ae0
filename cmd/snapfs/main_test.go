package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestMain makes the program, and its scripts and texts beside it, where every user
// may read them.
func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(_ context.Context, dir string) error {
		home := filepath.Join(dir, "home") // the state directories of the tests are listed in it
		return errors.Join(
			os.Mkdir(home, 0o700), os.Setenv("HOME", home),
			os.CopyFS(filepath.Join(dir, "script"), os.DirFS("testdata/script")),
			copyFile("../../README.md", filepath.Join(dir, "README.md")),
		)
	}))
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

func program() string { return treetest.Program() }

func TestCommandsAsRoot(t *testing.T) {
	treetest.NeedRoot(t)
	scripts(t, "")
}

// TestCommandsWhereAProcessServesTheTree: what holds with the best backend of this machine
// holds with the one that any machine has.
func TestCommandsWhereAProcessServesTheTree(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	// What a backend can change: the rest is about networks, limits, stages and races, or the engine's tests and the
	// conformance suite do the same to a served tree.
	trees := []string{"exec", "refresh", "renamed", "states"}
	if treetest.Long(t) {
		trees = nil
	}
	scripts(t, "fusecow", trees...)
}

func TestCommandsAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithTUN())
		return
	}
	treetest.OncePerRun(t)
	// What depends on who runs it: the rest runs the same code for every user.
	byUser := []string{"accounts", "arguments", "doctor", "exec", "hidden", "limits", "machine", "net", "new", "open", "pool", "promote", "rm", "run", "secretfile"}
	if treetest.Long(t) {
		byUser = nil
	}
	scripts(t, "", byUser...)
}

// scripts runs the named scripts of testdata/script, or all of them where none is named, each in
// a workspace and with a state directory of its own, and on a backend where that is named. Each
// ends with nothing left of it.
func scripts(t *testing.T, backend string, names ...string) {
	work := treetest.Dir(t)
	treetest.Leaks(t)
	dir := filepath.Join(treetest.Built(), "script")
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(dir, name+".txtar"))
	}
	if files != nil {
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir:         dir,
		Files:       files,
		WorkdirRoot: work,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", treetest.Built()+":"+os.Getenv("PATH"))
			e.Setenv("SNAPFS_HOME", e.WorkDir+"/.state")
			home := os.Getenv("HOME")
			if os.Geteuid() == 0 { // a sandbox does not see the state directories that are listed in its user's home
				home = e.WorkDir + "/.home"
			}
			e.Setenv("HOME", home)
			e.Setenv("SNAPFS_BACKEND", backend)
			e.Setenv("SNAPFS_DRIFT_TIME", "10s") // on a busy machine 5 ms may pass without a look
			e.Defer(func() {
				d := &desk{t, e.Cd, e.WorkDir + "/.state"}
				d.clear()
				d.snapfs("pool", "rm") // where a script was given up
			})
			e.Cd = filepath.Join(e.WorkDir, "w")
			return errors.Join(os.MkdirAll(home, 0o700), os.MkdirAll(e.Cd, 0o755))
		},
		Condition: func(c string) (bool, error) {
			switch c {
			case "root":
				return os.Geteuid() == 0, nil
			case "long":
				return treetest.Long(t), nil
			case "served":
				return backend == "fusecow", nil
			case "systemd":
				_, err := os.Stat("/run/systemd/system")
				return err == nil, nil
			case "fuse":
				return opens("/dev/fuse"), nil
			case "tun":
				return opens("/dev/net/tun"), nil
			}
			return false, fmt.Errorf("no condition %q", c)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "untouched": untouched, "schema": schema},
	})
}

// opens reports whether this process may open a device.
func opens(device string) bool {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return err == nil
}
