package proc

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// SealedCopy returns an immutable copy of a program in memory (memfd_create(2)), for running
// it in a sandbox: a process there could write to the original file through its descriptor
// (CVE-2019-5736). The caller closes it. Cost: a copy of the file, some milliseconds. Linux
// only.
func SealedCopy(path string) (*os.File, error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	fd, err := unix.MemfdCreate("snapfs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all may be run
		fd, err = unix.MemfdCreate("snapfs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	to := os.NewFile(uintptr(fd), "memfd")
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return nil, err
	}
	if err := to.Chmod(0o555); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(to.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", to.Fd())) // what is open for writing cannot be run
}
