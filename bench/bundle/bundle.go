//go:build linux

// Package bundle makes the bundle, a root directory with its configuration, with which OCI runtimes are measured.
package bundle

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/bench/copies"
)

// Config returns the configuration with which OCI runtimes such as runc are measured, version 1.0: one
// program in new namespaces, without privileges.
func Config() map[string]any {
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

// Make makes the bundle in the directory top, which must not exist: the configuration, and a root directory with a
// copy of program as /usr/bin/true.
func Make(top, program string) error {
	root := filepath.Join(top, "rootfs")
	for _, dir := range []string{"usr/bin", "etc", "proc", "sys", "dev", "run", "tmp", "var", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := copies.Program(filepath.Join(root, "usr/bin/true"), program); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("ID=empty\n"), 0o644); err != nil {
		return err
	}
	config, err := json.Marshal(Config())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(top, "config.json"), config, 0o644)
}
