package nodes

import (
	"os"
	"strconv"
	"unsafe"

	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Domain identifies the part of a filesystem within which the kernel renames files from and to the open directory dir,
// which may be open with O_PATH. Between directories of different domains a rename fails with EXDEV. The domain is
// made of the directory's quota project (ext4, XFS), which new files may inherit, and its encryption policy (fscrypt).
// "" means neither, or that dir cannot be read. Cost: four system calls.
func Domain(dir *os.File) (name string) {
	f, err := vfs.OpenDir(int(dir.Fd()), ".")
	if err != nil {
		return ""
	}
	defer f.Close()
	if id, err := projquota.Of(int(f.Fd())); err == nil && id != 0 {
		name = strconv.FormatUint(uint64(id), 10)
	}
	const getPolicy = 0xc0096616 // FS_IOC_GET_ENCRYPTION_POLICY_EX in linux/fscrypt.h
	var policy struct {
		size uint64
		data [24]byte // as long as struct fscrypt_policy_v2
	}
	policy.size = uint64(len(policy.data))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getPolicy, uintptr(unsafe.Pointer(&policy))); errno == 0 {
		name += " " + string(policy.data[:min(policy.size, uint64(len(policy.data)))])
	}
	return name
}
