//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/bench/bundle"
	"github.com/snapfs/snapfs/bench/copies"
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

// smallRoot makes a bundle for measuring OCI runtimes such as runc: a root directory with only a program that
// exits at once, and the configuration to run it.
func (l *lab) smallRoot(ctx context.Context) (string, error) {
	program, err := l.emptyProgram(ctx)
	if err != nil {
		return "", err
	}
	top := filepath.Join(l.dir, "bundle")
	root := filepath.Join(top, "rootfs")
	for _, dir := range []string{"usr/bin", "etc", "proc", "sys", "dev", "run", "tmp", "var", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return "", err
		}
	}
	if err := copies.Program(filepath.Join(root, "usr/bin/true"), program); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("ID=empty\n"), 0o644); err != nil {
		return "", err
	}
	config, err := json.Marshal(bundle.Config())
	if err != nil {
		return "", err
	}
	return top, os.WriteFile(filepath.Join(top, "config.json"), config, 0o644)
}
