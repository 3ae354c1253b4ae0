package notifier

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Read returns the path, after symbolic links, of the file or directory that an observed call opens for reading in the
// container's tree. It returns "" if nothing is there, if it is neither a regular file nor a directory, and in /dev,
// /proc and /sys, which processes may always read.
func (call Call) Read(in *Tree) string {
	call = call.followed()
	for _, own := range []string{"/dev/", "/proc/", "/sys/"} {
		if strings.HasPrefix(call.Path, own) && !strings.Contains(call.raw, "/..") {
			return ""
		}
	}
	there, found := call.entryAt(in, call.Flags&unix.O_NOFOLLOW == 0)
	if !found || there.kind != unix.S_IFREG && there.kind != unix.S_IFDIR {
		return ""
	}
	return there.path
}

// Moved returns the paths, after symbolic links of the directories, of the file or directory that an observed call
// renames or links, and of its other name, in the container's tree; "" if there is no such file or directory.
func (call Call) Moved(in *Tree) (from, to string) {
	to = Call{PID: call.PID, Act: Replace, Path: call.To, raw: call.rawTo}.Written(in)
	if call = call.followed(); to == "" {
		return "", ""
	}
	there, _ := call.entryAt(in, call.Flags&unix.AT_SYMLINK_FOLLOW != 0)
	return there.path, to
}

// Program returns the path of the program that an observed call executes, in the container's tree. Symbolic links are
// followed only if the path has a "..".
func (call Call) Program(in *Tree) string {
	if !strings.Contains(call.raw, "/..") {
		return call.Path
	}
	there, _ := call.entryAt(in, true)
	return there.path
}

// entryAt returns the file that the call names in the container's tree, following a last symbolic link with follow;
// false if there is none.
func (call Call) entryAt(in *Tree, follow bool) (entry, bool) {
	if strings.Contains(call.raw, "/..") {
		there, found := in.entryAt(call.raw, follow)
		if found || !strings.HasPrefix(call.raw, "/proc/") && !strings.HasPrefix(call.raw, "/dev/") {
			return there, found
		}
	}
	return in.entryAt(call.Path, follow) // for ".." after a directory that this process sees otherwise, such as /proc/self
}
