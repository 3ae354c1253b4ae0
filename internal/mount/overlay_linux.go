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

// Overlay holds the options with which [NewOverlay] makes an overlayfs mount: its layers, work directory and
// features (Documentation/filesystems/overlayfs.rst).
type Overlay struct {
	// Lower lists the read-only layers, topmost first; at least one. Each is a path of any
	// bytes but NUL and any length that the kernel opens, or the [FDPath] of a descriptor. A
	// descriptor of a detached mount needs Linux 6.15.
	Lower []string
	// Upper and Work are the writable layer and its work directory, on one filesystem; both
	// empty for a read-only mount.
	Upper, Work string
	// UserXattr stores overlayfs's own attributes as user.*. Mounting in a user namespace
	// needs it; it excludes RedirectDir and Metacopy.
	UserXattr bool
	// RedirectDir lets a directory of a lower layer be renamed in one step. Reading layers
	// that were written with it needs it too.
	RedirectDir bool
	// Metacopy makes a change of metadata copy up only the metadata. Reading layers that were
	// written with it needs it too: without it the kernel refuses such files (EPERM).
	Metacopy bool
	// Volatile makes overlayfs skip every sync of the upper layer. Afterwards Work holds
	// incompat/volatile, which prevents another mount with these directories until it is
	// removed. Without Upper it is ignored.
	Volatile bool
	// NoIndex sets index=off: changing one of several hard links of a lower layer separates it
	// from the others, and upper and lower may be from different mounts.
	NoIndex bool
	// Xino is "", "on", "off" or "auto".
	Xino string
	// Attr are unix.MOUNT_ATTR_* flags of the mount: MOUNT_ATTR_NOATIME and so on.
	Attr uint64
	// Strings passes all layers in one option lowerdir=, the only way before Linux 6.5;
	// NewOverlay also falls back to it. It fits about 14 layers; more return E2BIG.
	Strings bool
	// Nested is set if the last of Lower contains the other layers, which the kernel refuses;
	// NewOverlay then wraps it with wrapLower.
	Nested bool
}

// ErrEndedReadOnly reports that the kernel mounted an overlay with an upper layer read-only,
// because it could not use the work directory. With id-mapped layers this happens when the
// caller's filesystem ids are not mapped; only the kernel's log has the reason.
var ErrEndedReadOnly = errors.New("the kernel made the overlay read-only: its work directory cannot be written with these ids")

// NewOverlay returns a detached overlay mount with the options o. With one layer and no upper
// it returns a read-only clone of the layer instead, which costs nothing to read through.
//
// Errors wrap the error number, or are ErrEndedReadOnly. After an error nothing is mounted,
// but Work may hold the directories overlayfs makes there. Cost: 0.1 ms, and 10 µs a layer.
func NewOverlay(o Overlay) (*os.File, error) {
	if o.Nested && len(o.Lower) > 1 {
		return mountNested(o)
	}
	if o.Upper == "" && len(o.Lower) == 1 {
		return readOnlyClone(o.Lower[0], o.Attr)
	}
	if o.UserXattr && (o.RedirectDir || o.Metacopy) {
		// The kernel says so in its own log only.
		return nil, refused("overlay", "userxattr", unix.EINVAL, "userxattr excludes redirect_dir and metacopy")
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

// noLowerPlus reports whether err, of an overlay mount, is how a kernel before 6.5 refuses the unknown option
// lowerdir+. Such a kernel fails without a message when the overlay is created, while a newer one names the
// option at once.
func noLowerPlus(err error) bool {
	if !errors.Is(err, unix.EINVAL) || errors.Is(err, errOption) {
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
	mount, err := CloneTree(path)
	if err != nil {
		return nil, err
	}
	if err := SetMountAttr(mount, attr|unix.MOUNT_ATTR_RDONLY); err != nil {
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
			return refused("overlay", key, unix.E2BIG, strconv.Itoa(len(o.Lower))+
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

func setFeatures(c *FSContext, o Overlay) error {
	for _, opt := range []struct {
		on         bool
		key, value string
	}{
		{o.UserXattr, "userxattr", ""},
		{o.RedirectDir, "redirect_dir", "on"},
		{o.Metacopy, "metacopy", "on"},
		{!o.Metacopy && !o.UserXattr, "metacopy", "off"}, // a kernel may have it on by default
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

// A layerNames turns the paths of overlay layers into option values that every kernel parses correctly. It
// opens a layer whose path is long or has a special character, and names it by its descriptor in /proc,
// because kernels differ in what they unescape.
type layerNames struct{ open []*os.File }

const maxOption = 255 // fsconfig takes values of 255 bytes and a NUL

// all returns the mount option values that name the overlay layers in paths: the path, or, if it is long or
// has a special character, that of an opened descriptor in /proc. With joined set, the caller joins all
// values in one option of limited length: if they are too long for that, every layer is named by its
// descriptor. The values are valid until l.close.
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
