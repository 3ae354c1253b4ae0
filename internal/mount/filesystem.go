package mount

// Filesystem is what statfs(2) tells.
type Filesystem struct {
	// Type is the name as mount(8) has it ("ext4" for ext2 and ext3 too,
	// which share one number), or the number in hexadecimal.
	Type string
	// Size, Free and Avail in bytes; Avail is what an ordinary user may take.
	Size, Free, Avail int64
	// Files and FreeFiles count inodes; both zero where there is no limit.
	Files, FreeFiles uint64
	// ReadOnly: the mount or the filesystem cannot be written.
	ReadOnly bool
	// NameMax is the longest name in bytes.
	NameMax int
}

// IsNetwork reports whether another machine may change the files: then there is
// no instant at which they can be captured, and locks and times are not ours.
func (f Filesystem) IsNetwork() bool {
	switch f.Type {
	case "nfs", "cifs", "smb2", "smb3", "9p", "ceph", "afs", "coda", "lustre", "gpfs", "ocfs2", "gfs2":
		return true
	}
	return false
}

// IsVirtual reports whether the kernel makes the files up: there is nothing to
// capture, and reading them can have effects.
func (f Filesystem) IsVirtual() bool {
	switch f.Type {
	case "proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "bpf",
		"pstore", "efivarfs", "configfs", "fusectl", "binfmt_misc", "mqueue", "autofs", "nsfs":
		return true
	}
	return false
}
