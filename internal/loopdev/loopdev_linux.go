package loopdev

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Attach attaches the open file image to a loop device, unless it already is attached (Linux 5.8), and
// returns the open device. The kernel detaches the device when its last user is gone, so the caller must not
// close it before mounting it. Direct I/O is used if the image's filesystem allows it. Errors: *os.PathError;
// ENOENT: no loop devices; EPERM: no right to configure one.
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

// attachedLoop returns, open, the loop device to which an image is already attached, or nil. A device can
// outlive its last unmount here, because copied mount namespaces still hold the mount. A second device for
// the same image would be mounted as a second filesystem on the same blocks, and corrupt them.
func attachedLoop(image *os.File) (*os.File, error) {
	st, err := vfs.Lstat(int(image.Fd()), "")
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/sys/block/loop*") // a longer pattern makes Glob list the directory of each device
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := os.Lstat(name + "/loop/backing_file"); err != nil {
			continue // the device is not in use
		}
		path := "/dev/" + filepath.Base(name)
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
