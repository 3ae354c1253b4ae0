package notifier

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Written returns the path, after symbolic links, of the file that an observed call writes or changes, in the
// container's tree. It returns "" if the call has another reason to fail, as to create what exists or to
// remove what does not, or if it writes to no regular file, or to one in /dev or /proc, which processes write to all the
// time, and always may.
func (call Call) Written(in *Tree) string {
	call = call.followed()
	if (strings.HasPrefix(call.Path, "/dev/") || strings.HasPrefix(call.Path, "/proc/")) && !strings.Contains(call.raw, "/..") {
		return ""
	}
	there, found := call.entryAt(in, false)
	switch call.Act {
	case Create:
		if !found {
			return call.newAt(in)
		}
		return ""
	case Replace:
		return call.newAt(in)
	case Remove:
		return there.path
	case Open:
		return call.opened(in, there, found)
	}
	there, _ = call.entryAt(in, true) // SetAttr and Truncate
	return there.path
}

// opened returns the path of the file that a call of open(2) writes to or creates, as Written does. there is what is
// at the path of the call, a symbolic link itself; found is set if something is.
func (call Call) opened(in *Tree, there entry, found bool) string {
	creates, writes := call.Flags&unix.O_CREAT != 0, call.Flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_TRUNC) != 0
	switch {
	case call.Flags&unix.O_PATH != 0:
		return ""
	case !found && creates:
		return call.newAt(in)
	case !found || !writes, creates && call.Flags&unix.O_EXCL != 0:
		return ""
	}
	if there.kind == unix.S_IFLNK && call.Flags&unix.O_NOFOLLOW == 0 {
		there, _ = call.entryAt(in, true)
	}
	temporary := call.Flags&unix.O_TMPFILE == unix.O_TMPFILE // in this directory, and without a name
	if there.kind == unix.S_IFREG || there.kind == unix.S_IFDIR && temporary {
		return there.path
	}
	return ""
}

// newAt returns the path, after symbolic links, at which the call would make a new file in the container; "" if its
// directory does not exist.
func (call Call) newAt(in *Tree) string {
	raw, _ := filepath.Split(strings.TrimRight(call.raw, "/"))
	dir, found := Call{Path: filepath.Dir(call.Path), raw: raw}.entryAt(in, true)
	if !found || dir.kind != unix.S_IFDIR {
		return ""
	}
	return filepath.Join(dir.path, filepath.Base(call.Path))
}
