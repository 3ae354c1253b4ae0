package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// status N COMMAND...: it exits with N. Its output goes to the files stdout and
// stderr above the workspace, where grep finds it; its input is empty.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd := exec.Command(args[1], args[2:]...)
	if args[1] == "snapfs" {
		cmd.Path = program()
		cmd.Err = nil
	}
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"), "SNAPFS_HOME="+ts.Getenv("SNAPFS_HOME"))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	for name, text := range map[string]string{"stdout": out.String(), "stderr": errs.String()} {
		ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), name), []byte(text), 0o644))
	}
	ts.Logf("%s%s", out.String(), errs.String())
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("%q: status %d, want %d", args[1:], got, want)
	}
}

// untouched NAME...: the workspace holds these files and no others, each with
// the content "real\n"; and no sandbox is left in the state directory.
func untouched(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(filepath.Join(ts.Getenv("WORK"), "w"))
	ts.Check(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		data, err := os.ReadFile(filepath.Join(ts.Getenv("WORK"), "w", e.Name()))
		ts.Check(err)
		if string(data) != "real\n" {
			ts.Fatalf("%s holds %q", e.Name(), data)
		}
	}
	slices.Sort(args)
	if neg || !slices.Equal(names, args) {
		ts.Fatalf("the workspace holds %q, want %q", names, args)
	}
}
