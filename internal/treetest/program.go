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

// builtEnv is the environment variable by which a test process of another user learns the directory of the
// programs that [WithProgram] built.
const builtEnv = "SNAPFS_TEST_BUILT"

// programEnv is the environment variable that names an already built snapfs. [WithProgram] copies that
// instead of building one, which saves an ordinary user from compiling everything again.
const programEnv = "SNAPFS_TEST_PROGRAM"

// siteOfTests is the linker's setting that makes a program under test read the administrator's policy from a
// directory that no machine has. So no test depends on the policy of this machine. The Makefile does the
// same.
const siteOfTests = "github.com/snapfs/snapfs/engine/policy.SiteDir=/etc/snapfs-of-tests"

// WithProgram is called by a TestMain that tests the built program. It makes a directory that every user may
// read, builds snapfs and its helper programs in it, and calls more to make other files there. Then it runs
// the tests, removes the directory and returns the tests' status, or 1 if building failed. In a process that
// [RunAs] started it only runs the tests.
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
		err = errors.Join(build(ctx, dir, "snapfs"), build(ctx, dir, "snapfs-edge"), build(ctx, dir, "snapfs-fuse"), build(ctx, dir, "snapfs-serve"))
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
	args := []string{"go", "build", "-ldflags=-X " + siteOfTests, "-o", path, "github.com/snapfs/snapfs/cmd/" + name}
	if program := os.Getenv(programEnv); program != "" {
		args = []string{"cp", filepath.Join(filepath.Dir(program), name), path}
	}
	_, err := run.Output(ctx, args[0], args[1:]...)
	return err
}

// Built returns the directory in which [WithProgram] built snapfs and its helper programs.
func Built() string { return os.Getenv(builtEnv) }

// Program returns the path of the snapfs program that [WithProgram] built.
func Program() string { return filepath.Join(Built(), "snapfs") }
