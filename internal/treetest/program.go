//go:build linux

package treetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/run"
)

// builtEnv hands the directory of [WithProgram] on to a test that runs as another
// user.
const builtEnv = "SNAPFS_TEST_BUILT"

// programEnv names a program that was built already, to be copied: an ordinary
// user would compile all of it again, the standard library too.
const programEnv = "SNAPFS_TEST_PROGRAM"

// WithProgram is for a TestMain: it makes a directory that every user may read,
// builds snapfs and what it starts in it, lets more make what else the tests need there, runs the
// tests, removes the directory and answers with their status, or 1 where
// something could not be made. In a process that [RunAs] started it only runs
// them: there is such a directory already.
func WithProgram(tests func() int, more func(ctx context.Context, dir string) error) (status int) {
	if os.Getenv(builtEnv) != "" {
		return tests()
	}
	ctx := context.Background()
	dir, err := os.MkdirTemp(scratch, mark()+"built-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = errors.Join(build(ctx, dir, "snapfs"), build(ctx, dir, "snapfs-edge"), build(ctx, dir, "snapfs-fuse"))
	}
	if err == nil {
		err = errors.Join(more(ctx, dir), os.Setenv(builtEnv, dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}

func build(ctx context.Context, dir, name string) error {
	path := filepath.Join(dir, name)
	args := []string{"go", "build", "-o", path, "github.com/snapfs/snapfs/cmd/" + name}
	if program := os.Getenv(programEnv); program != "" {
		args = []string{"cp", filepath.Join(filepath.Dir(program), name), path}
	}
	_, err := run.Output(ctx, args[0], args[1:]...)
	return err
}

// Built is the directory that [WithProgram] made.
func Built() string { return os.Getenv(builtEnv) }

// Program is the program that [WithProgram] built.
func Program() string { return filepath.Join(Built(), "snapfs") }
