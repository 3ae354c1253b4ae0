package loopdev

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Attach makes the file image a loop device (Linux 5.8), where it is none yet,
// and answers with the device, open. It detaches itself when its last user is gone: keep it open
// until it is mounted. Direct I/O is used where the filesystem of image allows.
// Errors: *os.PathError; ENOENT where there are no loop devices, EPERM without
// the right to configure one.
func Attach(image *os.File) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	if loop, err := attachedLoop(image); loop != nil || err != nil {
		return loop, err
	}
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

// attachedLoop is the loop device that an image is attached to already, open, or
// nil. It may be so after its last unmount here: a mount namespace that was copied
// before holds the mount. A second device of one image would be a second
// filesystem on the same blocks, which btrfs mounts since Linux 6.7
// (it gives the second one a temporary id), and each would write over the other.
func attachedLoop(image *os.File) (*os.File, error) {
	st, err := vfs.Lstat(int(image.Fd()), "")
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file") // only of devices in use
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(name)))
		loop, err := os.OpenFile(path, os.O_RDWR, 0) // an open device keeps its image
		if err != nil {
			continue // it was detached in between, or its node is not here
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		if err == nil && info.Inode == st.Ino && info.Device == st.Dev {
			return loop, nil
		}
		loop.Close()
	}
	return nil, nil
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
