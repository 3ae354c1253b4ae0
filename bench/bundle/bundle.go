// Package bundle has the configuration with which OCI runtimes are measured.
package bundle

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
