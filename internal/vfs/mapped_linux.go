package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// IsMapped reports whether a program has mapped the regular file f, which is open for reading, so that it may change
// it through memory (mmap(2) with MAP_SHARED and PROT_WRITE). Of several such changes the kernel stamps only the first
// one after each write of the page to the disk: a later one leaves no trace in the file's times. Processes of other
// users are not seen without root. Cost: two system calls; if a program has the file open for writing, reading the
// mappings of all processes.
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
		data, _ := os.ReadFile(list) // it has ended, or belongs to another user
		for line := range bytes.Lines(data) {
			// address perms offset dev inode path, see proc_pid_maps(5)
			if field := bytes.Fields(line); len(field) >= 5 && string(field[4]) == ino && field[1][1] == 'w' && field[1][3] == 's' {
				return true
			}
		}
	}
	return false
}
