package notifier

import (
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Written returns the path, after symbolic links, of the file that an observed call writes or changes, in the
// container with this root. It returns "" if the call has another reason to fail, as to create what exists or to
// remove what does not, or if it writes to no regular file, or to one in /dev or /proc, which processes write to all the
// time, and always may.
func (call Call) Written(root int) string {
	call = call.followed()
	if strings.HasPrefix(call.Path, "/dev/") || strings.HasPrefix(call.Path, "/proc/") {
		return ""
	}
	there, found := call.entryAt(root, false)
	switch call.Act {
	case Create:
		if !found {
			return call.newAt(root)
		}
		return ""
	case Replace:
		return call.newAt(root)
	case Remove:
		return there.path
	case Open:
		return call.opened(root, there, found)
	}
	there, _ = call.entryAt(root, true) // SetAttr and Truncate
	return there.path
}

// opened returns the path of the file that a call of open(2) writes to or creates, as Written does. there is what is
// at the path of the call, a symbolic link itself; found is set if something is.
func (call Call) opened(root int, there entry, found bool) string {
	creates, writes := call.Flags&unix.O_CREAT != 0, call.Flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_TRUNC) != 0
	switch {
	case call.Flags&unix.O_PATH != 0:
		return ""
	case !found && creates:
		return call.newAt(root)
	case !found || !writes, creates && call.Flags&unix.O_EXCL != 0:
		return ""
	}
	if there.kind == unix.S_IFLNK && call.Flags&unix.O_NOFOLLOW == 0 {
		there, _ = call.entryAt(root, true)
	}
	temporary := call.Flags&unix.O_TMPFILE == unix.O_TMPFILE // in this directory, and without a name
	if there.kind == unix.S_IFREG || there.kind == unix.S_IFDIR && temporary {
		return there.path
	}
	return ""
}

// An entry is a file of a container: its path after symbolic links, and its kind as in st_mode.
type entry struct {
	path string
	kind uint32
}

// entryAt returns the file at path in the container, following a last symbolic link with follow; false if there is
// none. root is a descriptor of the container's root directory.
func entryAt(root int, path string, follow bool) (entry, bool) {
	fd := openPath(root, path, follow)
	if fd < 0 {
		return entry{}, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	real, err := pathOf(fd), unix.Fstat(fd, &st)
	if real == "" || err != nil {
		return entry{}, false
	}
	return entry{path: real, kind: st.Mode & unix.S_IFMT}, true
}

// descriptor returns the path in /proc of a descriptor of this process.
func descriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// pathOf returns the path of the file that is open as fd, or "" if it has none.
func pathOf(fd int) string {
	var buf [unix.PathMax]byte
	n, err := unix.Readlink(descriptor(fd), buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// openPath opens the file at path in the container as O_PATH, following a last symbolic link with follow. It returns -1
// if there is none. root is a descriptor of the container's root directory.
func openPath(root int, path string, follow bool) (fd int) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if !follow {
		how.Flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat2(root, path, &how)
	if err != nil {
		return -1
	}
	return fd
}

// newAt returns the path, after symbolic links, at which the call would make a new file in the container; "" if there is no
// such directory. root is a descriptor of the container's root directory.
func (call Call) newAt(root int) string {
	asked, _ := filepath.Split(strings.TrimRight(call.asked, "/"))
	dir, found := Call{Path: filepath.Dir(call.Path), asked: asked}.entryAt(root, true)
	if !found || dir.kind != unix.S_IFDIR {
		return ""
	}
	return filepath.Join(dir.path, filepath.Base(call.Path))
}
