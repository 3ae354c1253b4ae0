package mount

// A Point is one mount of this machine, as [List] returns it: a line of /proc/self/mountinfo
// (proc_pid_mountinfo(5)), or on macOS an entry of getfsstat(2), without Parent and SuperOptions.
type Point struct {
	// ID is the mount id and Parent that of the mount it is mounted on, as statx(2) returns
	// them (not the unique id).
	ID, Parent int
	// Dev is the device number that stat returns for most files of the mount, in the form of
	// unix.Mkdev. Each btrfs subvolume has a device number of its own.
	Dev uint64
	// Root is the directory of the filesystem that is mounted; Path is the mount point. Both
	// are unescaped.
	Root, Path string
	// Options are the options of the mount; SuperOptions are those of the filesystem.
	Options, SuperOptions string
	// Shared is set if later submounts propagate to other mount namespaces.
	Shared bool
	// Type is the filesystem's type and Source its device or source string.
	Type, Source string
}
