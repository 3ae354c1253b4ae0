//go:build linux

package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/bench/bundle"
	"github.com/snapfs/snapfs/internal/run"
)

// emptyProgram builds a Go program with an empty main function, whose start-up time is the lower bound for
// snapfs, and returns its path.
func (l *lab) emptyProgram(ctx context.Context) (string, error) {
	dir := filepath.Join(l.dir, "empty")
	program := filepath.Join(dir, "empty")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	err := errors.Join(os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module empty\n\ngo 1.26\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644))
	if err != nil {
		return "", err
	}
	env := append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local")
	return program, run.Run(ctx, run.Program{Name: "go", Args: []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", program, "."}, Env: env, Dir: dir})
}

// smallRoot makes the bundle for measuring OCI runtimes such as runc, and returns its path.
func (l *lab) smallRoot(ctx context.Context) (string, error) {
	program, err := l.emptyProgram(ctx)
	if err != nil {
		return "", err
	}
	top := filepath.Join(l.dir, "bundle")
	return top, bundle.Make(top, program)
}
