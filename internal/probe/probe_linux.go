package probe

// All returns all probes, without running them. A probe that depends on a filesystem tries that of the
// directory dir, which need not exist yet. If dir cannot be written, the probe answers Unknown.
func All(dir string) []Probe {
	at := place{dir}
	return []Probe{
		{"mount api", "mounts by descriptor", "5.2", probeMountAPI},
		{"user namespaces", "isolation without root", "3.8", probeUserNamespace},
		{"network namespaces", "a sandbox without network", "3.0", probeNetworkNamespace},
		{"overlay", "forks on any filesystem, as root", "5.2", at.probeOverlay},
		{"overlay features", "directory renames and cheap copies in forks", "5.10", at.probeOverlayFeatures},
		{"overlay for users", "forks without root", "5.11", at.probeUserOverlay},
		{"id-mapped mounts", "a range of ids for each sandbox", "5.12", at.probeIDMap},
		{"overlay on id-mapped layers", "both together", "5.19", at.probeIDMapOverlay},
		{"btrfs", "frozen bases and pools", "3.2", probeBtrfs},
		{"btrfs simple quotas", "limits on the disk space of a sandbox on btrfs", "6.7", probeSimpleQuota},
		{"mkfs.btrfs", "making pools", "", probeMkfs},
		{"loop devices", "pools in a file", "5.8", at.probeLoop},
		{"reflink", "copies without copying", "4.5", at.probeReflink},
		{"user xattrs", "attributes of files, and forks without root", "", at.probeXattrs},
		{"no new privileges", "set-id programs without effect", "3.5", probeNoNewPrivs},
		{"seccomp", "a filter on system calls", "3.17", probeSeccomp},
		{"landlock", "a second fence around files", "5.13", probeLandlock},
		{"pidfd", "signals that never hit another process", "5.3", probePidfd},
		{"cgroup v2", "freezing and killing a sandbox as a whole", "5.14", probeCgroup2},
		{"cgroup v1", "limits where the controllers are still there", "", probeCgroup1},
		{"subordinate ids", "more than one id without root", "3.8", probeSubordinate},
		{"fuse", "filesystems of our own", "", probeFUSE},
		{"fuse passthrough", "reading past a FUSE filesystem's process, as root", "6.9", probePassthrough},
		{"tun", "filtered networks", "", probeTun},
	}
}
