//go:build linux

package isolate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/internal/notes"
	"github.com/snapfs/snapfs/isolate/launch"
	"github.com/snapfs/snapfs/isolate/mounts"
)

// Notify replaces the file /run/snapfs/name in the container, atomically, for every process there to read; it
// belongs to the container's root. Symbolic links that processes in the container put there are never followed
// out of it.
//
// Cost: ten system calls. Errors: [errs.ErrClosed]; errors for whatever else the container has done to the
// directory.
func (c *Container) Notify(name string, content []byte) error {
	return c.inNotes(func(dir *os.File) error { return notes.Put(dir, name, content) })
}

// inNotes calls do with the container's directory /run/snapfs, which it makes if needed, and with the ids of the
// container's root.
func (c *Container) inNotes(do func(dir *os.File) error) error {
	root, err := c.Root()
	if err != nil {
		return err
	}
	defer root.Close()
	run, err := vfs.OpenBeneath(int(root.Fd()), "run", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		defer run.Close()
		if own, err := ownMount(root, run); err != nil || !own { // when its mounts are gone, /run is a directory of the tree below
			return errors.Join(closed("notifying the sandbox"), err)
		}
		err = notes.In(run, mounts.Notes, int(c.level.IDs.Base), do)
	}
	if err != nil {
		return launch.HostError("notifying the sandbox", err)
	}
	return nil
}

// inodeMemory is how many bytes of the kernel's memory an inode of a tmpfs and its name use, about.
const inodeMemory = 1 << 10

// Stored returns how many bytes of memory the container uses outside of its processes, and the device numbers of its
// filesystems in memory. These are /dev with /dev/shm, /run, and /tmp unless it is a directory of the host, with the
// memory for their inodes. System V shared memory, semaphores and message queues count, too, unless the container was
// started with [Spec.BestEffort].
//
// Cost: two dozen system calls, and a line of text for each System V object. Errors: [errs.ErrClosed].
func (c *Container) Stored() (bytes int64, devices []uint64, err error) {
	root, err := c.Root()
	if err != nil {
		return 0, nil, err
	}
	defer root.Close()
	for _, name := range []string{"dev", "run", "tmp"} {
		if name == "tmp" && c.builder.spec.Tmp != "" {
			continue
		}
		dir, err := vfs.OpenBeneath(int(root.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return 0, nil, launch.HostError("measuring the sandbox", err)
		}
		var fs unix.Statfs_t
		var st unix.Stat_t
		err = errors.Join(unix.Fstatfs(int(dir.Fd()), &fs), unix.Fstat(int(dir.Fd()), &st))
		own, err2 := ownMount(root, dir)
		if err = errors.Join(err, err2, dir.Close()); err != nil {
			return 0, nil, launch.HostError("measuring the sandbox", err)
		}
		if own && fs.Type == unix.TMPFS_MAGIC {
			bytes += int64(fs.Blocks-fs.Bfree)*fs.Bsize + int64(fs.Files-fs.Ffree)*inodeMemory
			devices = append(devices, st.Dev)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	objects, err := c.objects.Memory()
	if err != nil {
		return 0, nil, launch.HostError("measuring the sandbox", err)
	}
	return bytes + objects, devices, nil
}

// ownMount reports whether the directory dir is on another filesystem than root, the container's "/", so that
// its space counts on its own.
func ownMount(root, dir *os.File) (bool, error) {
	var r, d unix.Stat_t
	err := errors.Join(unix.Fstat(int(root.Fd()), &r), unix.Fstat(int(dir.Fd()), &d))
	return r.Dev != d.Dev, err
}
