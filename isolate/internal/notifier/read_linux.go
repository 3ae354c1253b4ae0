package notifier

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Read returns the path, after symbolic links, of the file or directory that an observed call opens for reading, in the
// container's tree. It returns "" if there is none, or if it is no regular file and no directory, or one in
// /dev, /proc or /sys, which processes may always read.
func (call Call) Read(in *Tree) string {
	call = call.followed()
	for _, own := range []string{"/dev/", "/proc/", "/sys/"} {
		if strings.HasPrefix(call.Path, own) {
			return ""
		}
	}
	there, found := in.entryAt(call.Path, call.Flags&unix.O_NOFOLLOW == 0)
	if !found || there.kind != unix.S_IFREG && there.kind != unix.S_IFDIR {
		return ""
	}
	return there.path
}

// Moved returns the paths, after symbolic links of the directories, of the file or directory that an observed call
// renames or links, and of its other name, in the container's tree; "" if there is no such file or directory.
func (call Call) Moved(in *Tree) (from, to string) {
	to = Call{PID: call.PID, Act: Replace, Path: call.To}.Written(in)
	if call = call.followed(); to == "" {
		return "", ""
	}
	there, _ := in.entryAt(call.Path, call.Flags&unix.AT_SYMLINK_FOLLOW != 0)
	return there.path, to
}
