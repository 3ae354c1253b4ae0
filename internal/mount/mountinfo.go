package mount

// A Point is one line of /proc/self/mountinfo (proc_pid_mountinfo(5)), or what
// getfsstat(2) tells of it, which leaves Parent and SuperOptions empty.
type Point struct {
	// ID and Parent are what statx calls the mount id (not the unique one).
	ID, Parent int
	// Dev is the device that stat reports for most files of the mount, as unix.Mkdev makes it.
	// btrfs subvolumes each report another.
	Dev uint64
	// Root is the directory of the filesystem that is mounted, Path the mount point, both
	// unescaped.
	Root, Path string
	// Options are those of the mount, SuperOptions those of the filesystem.
	Options, SuperOptions string
	// Shared: later submounts propagate to other namespaces.
	Shared bool
	// Type and Source of the filesystem.
	Type, Source string
}
