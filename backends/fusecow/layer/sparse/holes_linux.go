package sparse

import (
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// ReadAll fills buf from offset off of fd. Bytes beyond the end of the file are zeros.
func ReadAll(fd int, buf []byte, off int64) (int, error) {
	done := 0
	for done < len(buf) {
		k, err := unix.Pread(fd, buf[done:], off+int64(done))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return done, err
		case k == 0:
			clear(buf[done:])
			return len(buf), nil
		}
		done += max(k, 0)
	}
	return done, nil
}

// WriteAll writes all of buf at offset off of the file fd, repeating writes that were short.
func WriteAll(fd int, buf []byte, off int64) error {
	for len(buf) > 0 {
		k, err := unix.Pwrite(fd, buf, off)
		if err != nil && err != unix.EINTR {
			return err
		}
		k = max(k, 0)
		buf, off = buf[k:], off+int64(k)
	}
	return nil
}

// Extent returns the first range of data of the file fd in [from, end) as its start and end, or end, end if
// there is none.
func Extent(fd int, from, end int64) (data, hole int64, err error) {
	data, err = unix.Seek(fd, from, unix.SEEK_DATA)
	if err == unix.ENXIO || err == nil && data >= end {
		return end, end, nil
	}
	if err == nil {
		hole, err = unix.Seek(fd, data, unix.SEEK_HOLE)
	}
	return data, min(hole, end), err
}

// ReportsHoles reports whether SEEK_HOLE on the filesystem of fd is immediate and correct. ZFS
// waits for the disk, and ZFS 2.1 reported data being written as a hole (openzfs/zfs#15526).
// XFS may preallocate and report that as data. Unknown filesystems count as wrong.
func ReportsHoles(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.XFS_SUPER_MAGIC:
		ahead, err := projquota.AllocatesAhead(fd)
		return err == nil && !ahead
	case unix.EXT4_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	case unix.TMPFS_MAGIC:
		return !hasHugePages(fd)
	}
	return false
}

// hasHugePages reports whether the tmpfs of the descriptor fd may use huge pages (huge= in tmpfs(5)), which
// become data as a whole after one byte is written. It also returns true if it cannot find out.
func hasHugePages(fd int) bool {
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return true
	}
	mounts, _ := mount.List() // none if unknown
	for _, m := range mounts {
		if m.Dev == st.Dev && m.Type == "tmpfs" {
			return strings.Contains(m.SuperOptions, "huge=")
		}
	}
	return true
}

// CopyFile copies the content of src to dst with its holes; with clone it only shares blocks.
// It duplicates both descriptors, because other goroutines may use them.
func CopyFile(dst, src int, clone bool) error {
	to, err := Dup(dst)
	if err != nil {
		return err
	}
	defer to.Close()
	from, err := Dup(src)
	if err != nil {
		return err
	}
	defer from.Close()
	if clone {
		return vfs.CloneFile(to, from)
	}
	_, err = vfs.CopyFile(to, from)
	return err
}

// Dup returns a file with a duplicate of the descriptor fd, for the caller to close. The descriptor fd stays
// open.
func Dup(fd int) (*os.File, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(dup), "content"), err
}
