package nodes

import (
	"os"
	"strconv"
	"unsafe"

	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Domain names what separates the open directory dir, which may be open with O_PATH, from others of its filesystem, so
// that the kernel refuses to rename files between them (EXDEV): its quota project (ext4, XFS), which it may hand on to
// new files, and its encryption policy (fscrypt). "" means neither, or that dir cannot be read.
func Domain(dir *os.File) (name string) {
	f, err := vfs.OpenDir(int(dir.Fd()), ".")
	if err != nil {
		return ""
	}
	defer f.Close()
	if id, err := projquota.Of(int(f.Fd())); err == nil && id != 0 {
		name = strconv.FormatUint(uint64(id), 10)
	}
	const getPolicy = 0xc0096616 // FS_IOC_GET_ENCRYPTION_POLICY_EX of linux/fscrypt.h
	var policy struct {
		size uint64
		data [24]byte // struct fscrypt_policy_v2 is the longest
	}
	policy.size = uint64(len(policy.data))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getPolicy, uintptr(unsafe.Pointer(&policy))); errno == 0 {
		name += " " + string(policy.data[:min(policy.size, uint64(len(policy.data)))])
	}
	return name
}
