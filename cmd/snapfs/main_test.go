package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	names := allScripts(t)
	if treetest.Long(t) { // make test has run all of them
		names = slices.DeleteFunc(names, func(name string) bool { return !hasMore(t, name) })
	}
	scripts(t, "", names)
}

// TestCommandsWhereAProcessServesTheTree: what holds with the best backend of this machine
// holds with the one that any machine has.
func TestCommandsWhereAProcessServesTheTree(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	// What a backend can change: the rest is about networks, limits, stages and races, or the engine's tests and the
	// conformance suite do the same to a served tree.
	scripts(t, "fusecow", someScripts(t, "exec", "refresh", "renamed", "states"))
}

func TestCommandsAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithTUN())
		return
	}
	treetest.OncePerRun(t)
	// What depends on who runs it: the rest runs the same code for every user.
	scripts(t, "", someScripts(t, "accounts", "arguments", "doctor", "exec", "hidden", "limits", "machine", "net", "new", "open",
		"pool", "promote", "rm", "run", "secretfile"))
}

// someScripts returns the scripts that a test runs: those of few in make test, and all others in make test-long, which
// runs what make test has left.
func someScripts(t *testing.T, few ...string) []string {
	t.Helper()
	if !treetest.Long(t) {
		return few
	}
	return slices.DeleteFunc(allScripts(t), func(name string) bool { return slices.Contains(few, name) })
}

// allScripts returns the names of the scripts of testdata/script.
func allScripts(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(treetest.Built(), "script", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".txtar"))
	}
	return names
}

// hasMore reports whether a script does more in make test-long: it has the condition "long".
func hasMore(t *testing.T, name string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(treetest.Built(), "script", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(text, []byte("\n[long] ")) || bytes.Contains(text, []byte("\n[!long] "))
}

// scripts runs the named scripts of testdata/script, each in a workspace and with a state directory of its own, and on
// the backend if that is not "". Each ends with nothing left of it.
func scripts(t *testing.T, backend string, names []string) {
	work := treetest.Dir(t)
	treetest.Leaks(t)
	dir := filepath.Join(treetest.Built(), "script")
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(dir, name+".txtar"))
	}
	testscript.Run(t, testscript.Params{
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
