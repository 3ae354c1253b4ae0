//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

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
	if err := copyProgram(filepath.Join(root, "usr/bin/true"), program); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("ID=empty\n"), 0o644); err != nil {
		return "", err
	}
	config, err := json.Marshal(bundle())
	if err != nil {
		return "", err
	}
	return top, os.WriteFile(filepath.Join(top, "config.json"), config, 0o644)
}

// bundle returns the configuration with which OCI runtimes such as runc are measured, version 1.0: one
// program in new namespaces, without privileges.
func bundle() map[string]any {
	type m = map[string]any
	var namespaces []m
	for _, ns := range []string{"pid", "network", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, m{"type": ns})
	}
	return m{
		"ociVersion": "1.0.0",
		"process": m{
			"user": m{"uid": 0, "gid": 0}, "args": []string{"/usr/bin/true"}, "cwd": "/",
			"env": []string{"PATH=/usr/bin"}, "noNewPrivileges": true,
		},
		"root": m{"path": "rootfs", "readonly": true},
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		},
		"linux": m{"namespaces": namespaces},
	}
}
