package mount

// Filesystem describes a mounted filesystem: its type, its space and whether it is read-only, as statfs(2)
// returns them. [FilesystemOf] makes it.
type Filesystem struct {
	// Type is the name as mount(8) has it, or the type number in hexadecimal. ext2 and ext3
	// are "ext4", as all three share a number.
	Type string
	// Size, Free and Avail are in bytes; Avail is the space that an ordinary user may use.
	Size, Free, Avail int64
	// ReadOnly is set if the mount or the filesystem is read-only.
	ReadOnly bool
}

// IsNetwork reports whether the filesystem is a network one, which other machines can change:
// no snapshot of it is atomic, and its locks and times are not this machine's.
func (f Filesystem) IsNetwork() bool {
	switch f.Type {
	case "nfs", "cifs", "smb2", "smb3", "9p", "ceph", "afs", "coda", "lustre", "gpfs", "ocfs2", "gfs2":
		return true
	}
	return false
}

// IsVirtual reports whether the kernel generates the files, as in /proc: there is nothing to
// snapshot, and reading can have side effects.
func (f Filesystem) IsVirtual() bool {
	switch f.Type {
	case "proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "bpf",
		"pstore", "efivarfs", "configfs", "fusectl", "binfmt_misc", "mqueue", "autofs", "nsfs":
		return true
	}
	return false
}
