package mount

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"github.com/snapfs/snapfs/internal/forkcall"
	"golang.org/x/sys/unix"
)

// CheckFUSE returns nil if this user may open /dev/fuse, which serving a FUSE filesystem requires. Otherwise it
// returns the reason, and commands that mend or explain it.
func CheckFUSE() (hints []string, err error) {
	if err = unix.Access("/dev/fuse", unix.R_OK|unix.W_OK); err == nil {
		return nil, nil
	}
	mend := "sudo modprobe fuse"
	if errors.Is(err, unix.EACCES) { // it exists
		mend = "sudo chmod 0666 /dev/fuse"
	}
	return []string{mend, "ls -l /dev/fuse"}, errors.New("cannot open /dev/fuse: " + err.Error())
}

// A FUSE is a mounted FUSE filesystem as its server sees it, the process that answers its requests. [NewFUSE]
// makes it.
type FUSE struct {
	// Dev is the descriptor of /dev/fuse, from which the server reads requests. Close closes
	// it.
	Dev     int
	options FUSEOptions
	// userns is the user namespace in which the filesystem is mounted, -1 for the caller's.
	userns int
}

// FUSEOptions are the mount options with which [NewFUSE] makes a FUSE filesystem.
type FUSEOptions struct {
	// Subtype is the type in /proc/self/mountinfo, after "fuse.".
	Subtype string
	// Others lets other users access the filesystem; without it, only processes whose ids are
	// all this user's and group's may (fuse_permissible_uidgid in fs/fuse/dir.c).
	Others bool
	// MaxRead is the largest read request, in bytes.
	MaxRead int
	// ReadOnly promises that the files never change, access times included, so that the kernel
	// can cache attributes also after a read.
	ReadOnly bool
}

// NewFUSE makes a FUSE filesystem with the options o and returns it with a detached mount of it. attr holds
// MOUNT_ATTR_* flags; the kernel checks permissions of files. A user without the right to mount gets a new
// user namespace, in which other users appear as nobody. The filesystem ends with its last mount, and reads
// from Dev then return ENODEV. Cost: 0.1 ms, with a new namespace 1 ms. Errors wrap the error number.
func NewFUSE(o FUSEOptions, attr uint64) (*FUSE, *os.File, error) {
	f := &FUSE{Dev: -1, options: o, userns: -1}
	c, err := Fsopen("fuse")
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		m, err := f.mountInNamespace(attr)
		if err != nil {
			return nil, nil, err
		}
		return f, m, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	if f.Dev, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/fuse", Err: err}
	}
	m, err := f.mount(c, attr)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, m, nil
}

// Mount makes another detached mount of the same FUSE filesystem (Linux 5.14, fuse_get_tree in
// fs/fuse/inode.c). attr holds MOUNT_ATTR_* flags. Errors: as those of NewFUSE; ENOTCONN: the filesystem has
// ended.
func (f *FUSE) Mount(attr uint64) (m *os.File, err error) {
	if f.userns >= 0 {
		m, err = f.mountInNamespace(attr)
	} else {
		var c *FSContext
		if c, err = Fsopen("fuse"); err != nil {
			return nil, err
		}
		defer c.Close()
		m, err = f.mount(c, attr)
	}
	if errors.Is(err, unix.EINVAL) { // the options are as they were: its device served another, which is no more
		err = refused("fuse", "", unix.ENOTCONN)
	}
	return m, err
}

// Close closes the descriptors of /dev/fuse and of the user namespace that the FUSE server holds. The server
// must have ended.
func (f *FUSE) Close() {
	if f.Dev >= 0 {
		unix.Close(f.Dev)
	}
	if f.userns >= 0 {
		unix.Close(f.userns)
	}
}

func (f *FUSE) mount(c *FSContext, attr uint64) (*os.File, error) {
	for _, o := range f.pairs(f.Dev) {
		if err := c.Set(o[0], o[1]); err != nil {
			return nil, err
		}
	}
	for _, flag := range f.flags() {
		if err := c.SetFlag(flag); err != nil {
			return nil, err
		}
	}
	return c.Mount(attr)
}

func (f *FUSE) pairs(dev int) [][2]string {
	return [][2]string{
		{"source", "snapfs"},
		{"subtype", f.options.Subtype},
		{"fd", strconv.Itoa(dev)},
		{"rootmode", "40000"},
		{"user_id", strconv.Itoa(os.Geteuid())},
		{"group_id", strconv.Itoa(os.Getegid())},
		{"max_read", strconv.Itoa(f.options.MaxRead)},
	}
}

func (f *FUSE) flags() []string {
	flags := []string{"default_permissions"}
	if f.options.Others {
		flags = append(flags, "allow_other")
	}
	if f.options.ReadOnly {
		flags = append(flags, "ro")
	}
	return flags
}

// mountInNamespace returns a detached mount of the FUSE filesystem, with the MOUNT_ATTR_* flags attr, made in
// a user namespace, for a user who may not mount in this one. A child process makes it, which shares the
// table of open files and then exits. The first call makes the namespace, and opens /dev/fuse there, as the
// kernel requires.
func (f *FUSE) mountInNamespace(attr uint64) (*os.File, error) {
	p, namespaces := &forkcall.Program{}, uintptr(unix.CLONE_NEWUSER|unix.CLONE_NEWNS)
	first := f.userns < 0
	dev := f.Dev
	var ns, opened forkcall.Slot
	if first {
		// Its number has to be known beforehand.
		var err error
		if dev, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, &os.PathError{Op: "open", Path: "/dev/null", Err: err}
		}
		p = forkcall.OwnIDs()
		opened = p.Call("open /dev/fuse", unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		p.Call("dup3", unix.SYS_DUP3, opened, dev, unix.O_CLOEXEC)
		p.Call("close", unix.SYS_CLOSE, opened)
		ns = p.Call("open the user namespace", unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	} else {
		namespaces = 0
		p.Call("setns", unix.SYS_SETNS, f.userns, unix.CLONE_NEWUSER)
		p.Call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	}
	fs := p.Call("fsopen", unix.SYS_FSOPEN, "fuse", unix.FSOPEN_CLOEXEC)
	for _, o := range f.pairs(dev) {
		p.Call("fsconfig "+o[0], unix.SYS_FSCONFIG, fs, unix.FSCONFIG_SET_STRING, o[0], o[1], 0)
	}
	for _, flag := range f.flags() {
		p.Call("fsconfig "+flag, unix.SYS_FSCONFIG, fs, unix.FSCONFIG_SET_FLAG, flag, 0, 0)
	}
	p.Call("fsconfig create", unix.SYS_FSCONFIG, fs, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	attr |= unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID
	m := p.Call("fsmount", unix.SYS_FSMOUNT, fs, unix.FSMOUNT_CLOEXEC, int(attr))
	p.Call("close", unix.SYS_CLOSE, fs)
	result, failed, err := p.Results(namespaces | unix.CLONE_FILES)
	runtime.KeepAlive(f)
	if err != nil {
		if first {
			unix.Close(dev)
		}
		return nil, refused("fuse", failed, err)
	}
	if first {
		f.Dev, f.userns = dev, int(result[ns])
	}
	return os.NewFile(result[m], "fuse"), nil
}
