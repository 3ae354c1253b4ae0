package mount

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Overlay describes an overlayfs to mount. The kernel's own description is
// Documentation/filesystems/overlayfs.rst.
type Overlay struct {
	// Lower are the read-only layers, the topmost first; at least one. Each is
	// a path of any bytes but NUL and any length the kernel opens, or the
	// [FDPath] of a descriptor. A descriptor of a mount that is attached
	// nowhere needs Linux 6.15.
	Lower []string
	// Upper and Work are the writable layer and its work directory, on one
	// filesystem; both empty for a view that cannot be written.
	Upper, Work string
	// UserXattr keeps overlayfs's records in user.* attributes. A user
	// namespace needs it, and it excludes RedirectDir and Metacopy.
	UserXattr bool
	// RedirectDir lets a directory of a lower layer be renamed in one step.
	// A read-only view of layers written with it needs it as well.
	RedirectDir bool
	// Metacopy copies only the metadata up when only metadata changes. A
	// read-only view of layers written with it needs it as well.
	Metacopy bool
	// Volatile drops every sync of the upper layer. Afterwards Work holds
	// incompat/volatile, which keeps the pair from being mounted again until
	// it is removed. It is ignored where there is no Upper.
	Volatile bool
	// NoIndex is index=off: hard links of a lower layer part when one of
	// them is changed, and upper and lower need not come from the same mount.
	NoIndex bool
	// Xino is "", "on", "off" or "auto".
	Xino string
	// Attr are unix.MOUNT_ATTR_* flags of the mount: MOUNT_ATTR_NOATIME and so on.
	Attr uint64
	// Strings hands the layers over in one lowerdir= option, as kernels
	// before 6.5 need it: they are tried so anyhow when the other way fails.
	// It has room for 14 layers or so, and E2BIG is the answer to more.
	Strings bool
	// Nested: the last of Lower contains the other layers, which the kernel
	// refuses; it is wrapped in an overlay of its own (see nested_linux.go).
	Nested bool
}

// ErrEndedReadOnly says that the kernel mounted an overlay with an upper layer
// but made it read-only, because it could not use the work directory: it
// happens with id-mapped layers when the caller's filesystem ids are not
// mapped, and the reason is in the kernel's log only.
var ErrEndedReadOnly = errors.New("the kernel made the overlay read-only: its work directory cannot be written with these ids")

// NewOverlay mounts o, detached. A view of one layer and no upper is that
// layer itself, cloned and made read-only, which costs nothing to read through.
//
// Errors are *MountError, *os.PathError, or ErrEndedReadOnly. After an error
// nothing is mounted, but Work may hold the directories overlayfs makes there.
// Cost: 0.1 ms, and 10 µs a layer.
func NewOverlay(o Overlay) (*os.File, error) {
	if o.Nested && len(o.Lower) > 1 {
		return mountNested(o)
	}
	if o.Upper == "" && len(o.Lower) == 1 {
		return readOnlyClone(o.Lower[0], o.Attr)
	}
	if o.UserXattr && (o.RedirectDir || o.Metacopy) {
		// The kernel says so in its own log only.
		return nil, refused("userxattr", unix.EINVAL, "userxattr excludes redirect_dir and metacopy")
	}
	if !o.Strings {
		mount, err := mountOverlay(o)
		if !noLowerPlus(err) {
			return mount, err
		}
	}
	o.Strings = true
	return mountOverlay(o)
}

// noLowerPlus tells a kernel before 6.5, which has the old parser of options: it
// refuses lowerdir+ only when the overlay is created, and without a word, as it
// would refuse an option that nobody knows. The new one names it at once.
func noLowerPlus(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Err != unix.EINVAL || e.Option != "" {
		return false
	}
	c, err := Fsopen("overlay")
	if err != nil {
		return false
	}
	defer c.Close()
	return c.SetFlag("snapfs-no-such-option") == nil
}

func readOnlyClone(path string, attr uint64) (*os.File, error) {
	mount, err := CloneTree(path, false)
	if err != nil {
		return nil, err
	}
	if err := SetMountAttr(mount, attr|unix.MOUNT_ATTR_RDONLY, 0, false); err != nil {
		mount.Close()
		return nil, err
	}
	return mount, nil
}

func mountOverlay(o Overlay) (*os.File, error) {
	c, err := Fsopen("overlay")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var names layerNames
	defer names.close()
	if err := setLayers(c, o, &names); err != nil {
		return nil, err
	}
	if err := setFeatures(c, o); err != nil {
		return nil, err
	}
	mount, err := c.Mount(o.Attr)
	if err != nil || o.Upper == "" {
		return mount, err
	}
	if err := checkWritable(mount); err != nil {
		mount.Close()
		return nil, err
	}
	return mount, nil
}

func checkWritable(mount *os.File) error {
	var st unix.Statfs_t
	err := unix.Fstatfs(int(mount.Fd()), &st)
	if err == nil && st.Flags&unix.ST_RDONLY != 0 {
		err = ErrEndedReadOnly
	}
	return err
}

func setLayers(c *FSContext, o Overlay, names *layerNames) error {
	lower, err := names.all(o.Lower, o.Strings)
	if err != nil {
		return err
	}
	key := "lowerdir+"
	if o.Strings {
		key, lower = "lowerdir", []string{strings.Join(lower, ":")}
		if len(lower[0]) > maxOption {
			return refused(key, unix.E2BIG, strconv.Itoa(len(o.Lower))+
				" layers do not fit in one option; Linux 6.5 takes them one by one")
		}
	}
	for _, name := range lower {
		if err := c.Set(key, name); err != nil {
			return err
		}
	}
	if o.Upper == "" {
		return nil
	}
	pair, err := names.all([]string{o.Upper, o.Work}, false)
	if err != nil {
		return err
	}
	if err := c.Set("upperdir", pair[0]); err != nil {
		return err
	}
	return c.Set("workdir", pair[1])
}

func refused(option string, err unix.Errno, why string) error {
	return &Error{FS: "overlay", Option: option, Err: err, Log: []string{why}}
}

func setFeatures(c *FSContext, o Overlay) error {
	for _, opt := range []struct {
		on         bool
		key, value string
	}{
		{o.UserXattr, "userxattr", ""},
		{o.RedirectDir, "redirect_dir", "on"},
		{o.Metacopy, "metacopy", "on"},
		{o.Volatile && o.Upper != "", "volatile", ""},
		{o.NoIndex, "index", "off"},
		{o.Xino != "", "xino", o.Xino},
	} {
		var err error
		switch {
		case !opt.on:
			continue
		case opt.value == "":
			err = c.SetFlag(opt.key)
		default:
			err = c.Set(opt.key, opt.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// layerNames turns paths into names that every kernel takes as the value of a
// mount option. A long path, or one with a character that means something
// there, is opened and named by its descriptor: kernels differ in what they
// unescape (none before 6.5 takes a comma from fsconfig), but not in this.
type layerNames struct{ open []*os.File }

const maxOption = 255 // fsconfig takes values of 255 bytes and a NUL

// all names the paths; together they must fit in one option when joined is set.
func (l *layerNames) all(paths []string, joined bool) ([]string, error) {
	names, total := slices.Clone(paths), len(paths)
	for _, path := range paths {
		total += len(path)
	}
	for i, path := range paths {
		if len(path) <= maxOption && (!joined || total <= maxOption) && !strings.ContainsAny(path, ":,\\") {
			continue
		}
		f, err := vfs.OpenAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		l.open = append(l.open, f)
		names[i] = vfs.FDPath(f)
	}
	return names, nil
}

func (l *layerNames) close() {
	for _, f := range l.open {
		f.Close()
	}
}
