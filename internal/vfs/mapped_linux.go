package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// IsMapped reports whether a program has mapped the regular file f, which is open for reading, so that it may change
// the file through memory (mmap(2) with MAP_SHARED and PROT_WRITE). After each write of a page to the disk, the kernel
// sets the file's times only for the first such change: later ones leave no trace in them.
//
// IsMapped also returns true for a mapped file of another filesystem with the same inode number, and if not root, it
// does not see processes of other users. Cost: two system calls; if a program has the file open for writing, reading
// the mappings of all processes.
func IsMapped(f *os.File) bool {
	// A read lease is refused while the file is open for writing, or mapped so (fcntl(2)).
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != unix.EAGAIN {
		if err == nil {
			_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK) // closing f would release it, too
		}
		return false
	}
	st, err := Lstat(int(f.Fd()), "")
	if err != nil {
		return false
	}
	ino := strconv.FormatUint(st.Ino, 10)
	lists, _ := filepath.Glob("/proc/[0-9]*/maps") // the pattern is valid
	for _, list := range lists {
		data, _ := os.ReadFile(list) // an error: the process has ended, or belongs to another user
		for line := range bytes.Lines(data) {
			// address perms offset dev inode path, see proc_pid_maps(5)
			if field := bytes.Fields(line); len(field) >= 5 && string(field[4]) == ino && field[1][1] == 'w' && field[1][3] == 's' {
				return true
			}
		}
	}
	return false
}
