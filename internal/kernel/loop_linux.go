package kernel

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// AttachLoop makes the file image a loop device (Linux 5.8) and answers with
// the device, open. It detaches itself when its last user is gone: keep it open
// until it is mounted. Direct I/O is used where the filesystem of image allows.
// Errors: *os.PathError; ENOENT where there are no loop devices, EPERM without
// the right to configure one.
func AttachLoop(image *os.File) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, &os.PathError{Op: "get a free device", Path: ctl.Name(), Err: err}
		}
		loop, err := configureLoop("/dev/loop"+strconv.Itoa(n), image)
		if errors.Is(err, unix.EBUSY) {
			continue // somebody else took the device in between
		}
		return loop, err
	}
}

func configureLoop(path string, image *os.File) (*os.File, error) {
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	config := unix.LoopConfig{Fd: uint32(image.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	copy(config.Info.File_name[:len(config.Info.File_name)-1], image.Name())
	if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
		loop.Close()
		return nil, &os.PathError{Op: "configure", Path: path, Err: err}
	}
	return loop, nil
}
