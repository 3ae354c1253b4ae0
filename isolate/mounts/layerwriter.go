//go:build linux

package mounts

import (
	"os"
	"path"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// whiteoutName is the name of the first whiteout, in the root of a layer that hides entries; the others are
// hard links to it. It contains a character that no file of a program has in its name.
const whiteoutName = ".snapfs\x01whiteout"

// A layerWriter makes the entries of a layer that hides entries, which is a new tmpfs. It makes system calls without
// the Go scheduler's knowledge, which halves their time: a tmpfs never blocks them, and there are hundreds at each
// start.
type layerWriter struct {
	root int    // the layer's root directory
	text []byte // the path of the last call
}

// call makes a system call whose first two arguments are the layer's root and the path p in it. Errors: unix.Errno.
func (w *layerWriter) call(number uintptr, p string, third, fourth uintptr) error {
	w.text = append(append(w.text[:0], p...), 0)
	if _, _, errno := unix.RawSyscall6(number, uintptr(w.root), uintptr(unsafe.Pointer(&w.text[0])), third, fourth, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// fill copies the directories parents, and makes in them the entries that hide those of the host's tree. opaque is as
// in [hiddenLayer.fill].
func (w *layerWriter) fill(parents []parent, hidden []Hidden, opaque bool) error {
	if err := w.call(unix.SYS_MKNODAT, whiteoutName, unix.S_IFCHR, 0); err != nil {
		return os.NewSyscallError("mknodat", err)
	}
	if err := w.makeDirs(parents); err != nil {
		return err
	}
	for _, h := range hidden {
		if len(h.Absent) == 0 && (!opaque || len(h.StandIns) == 0 && !h.All) {
			continue
		}
		if err := w.hide(h, opaque); err != nil {
			return &os.PathError{Op: "hide entries of", Path: h.Dir, Err: err}
		}
	}
	return w.completeDirs(parents)
}

// makeDirs makes a directory for each of parents, with the owner of the original, and with its mode if mkdir(2) can
// set that: the umask of the process must permit the mode, and the mode must let this process write. Then it sets
// hasMode.
func (w *layerWriter) makeDirs(parents []parent) error {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	var settable uint32 // the mode bits that mkdir(2) sets
	for i := range parents {
		p := &parents[i]
		p.hasMode = p.st.Mode&0o7777&^settable == 0 && p.st.Mode&0o700 == 0o700 && len(p.xattrs) == 0
		mode := uint32(0o777) // for the first one, which shows the umask
		switch {
		case p.hasMode:
			mode = p.st.Mode & 0o7777
		case i > 0:
			mode = 0o700
		}
		err := w.call(unix.SYS_MKDIRAT, p.path, uintptr(mode), 0)
		if err == nil && i == 0 {
			var made vfs.Stat
			made, err = vfs.Lstat(w.root, p.path)
			settable = made.Mode&0o777 | unix.S_ISVTX
		}
		if err == nil && (p.st.UID != uid || p.st.GID != gid) {
			err = unix.Fchownat(w.root, p.path, int(p.st.UID), int(p.st.GID), 0)
		}
		if err != nil {
			return &os.PathError{Op: "mkdir", Path: p.path, Err: err}
		}
	}
	return nil
}

// completeDirs gives the copies of parents, innermost first, the attributes of the originals that they still lack. It
// comes last, because a new entry changes the modification time of its directory.
func (w *layerWriter) completeDirs(parents []parent) error {
	for i := len(parents) - 1; i >= 0; i-- {
		p := &parents[i]
		for name, value := range p.xattrs {
			if !vfs.OverlayXattr(name) {
				_ = vfs.SetXattr(w.root, p.path, name, []byte(value), 0) // a tmpfs does not hold all kinds
			}
		}
		if !p.hasMode {
			if err := w.call(unix.SYS_FCHMODAT, p.path, uintptr(p.st.Mode&0o7777), 0); err != nil {
				return &os.PathError{Op: "chmod", Path: p.path, Err: err}
			}
		}
		times := [2]unix.Timespec{{Sec: p.st.ATime.Sec, Nsec: int64(p.st.ATime.Nsec)}, {Sec: p.st.MTime.Sec, Nsec: int64(p.st.MTime.Nsec)}}
		w.text = append(append(w.text[:0], p.path...), 0)
		_, _, errno := unix.RawSyscall6(unix.SYS_UTIMENSAT, uintptr(w.root), uintptr(unsafe.Pointer(&w.text[0])), uintptr(unsafe.Pointer(&times)), 0, 0, 0)
		if errno != 0 {
			return &os.PathError{Op: "utimes", Path: p.path, Err: errno}
		}
	}
	return nil
}

// hide makes the entries that hide those of one directory, h: whiteouts, and stand-ins. opaque is as in
// [hiddenLayer.fill].
func (w *layerWriter) hide(h Hidden, opaque bool) error {
	if err := w.linkWhiteouts(h.Dir, h.Absent); err != nil {
		return err
	}
	if !opaque {
		return nil
	}
	if h.All {
		if err := vfs.SetXattr(w.root, h.Dir, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return err
		}
	}
	for _, name := range h.Except { // a redirect leads out of the opaque directory, to the same path in the layers below
		at := path.Join(h.Dir, name)
		if err := vfs.SetXattr(w.root, at, "trusted.overlay.redirect", []byte("/"+at), 0); err != nil {
			return err
		}
	}
	for _, s := range h.StandIns {
		var err error
		at := path.Join(h.Dir, s.Name)
		switch s.Kind {
		case EmptyDir:
			if err = w.call(unix.SYS_MKDIRAT, at, 0o555, 0); err == nil {
				err = vfs.SetXattr(w.root, at, "trusted.overlay.opaque", []byte("y"), 0)
			}
		case EmptyFile:
			err = w.call(unix.SYS_MKNODAT, at, unix.S_IFREG|0o444, 0)
		case Link:
			err = unix.Symlinkat(s.Link, w.root, at)
		}
		if err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}

// linkWhiteouts makes whiteouts called names in the directory dir of the layer, as hard links to the whiteout that
// already exists in its root.
func (w *layerWriter) linkWhiteouts(dir string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	in, err := vfs.OpenAt(w.root, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	size := len(whiteoutName) + 1
	for _, name := range names {
		size += len(name) + 1
	}
	text := append(make([]byte, 0, size), whiteoutName+"\x00"...) // never moved: the calls have pointers into it
	for _, name := range names {
		at := len(text)
		text = append(append(text, name...), 0)
		_, _, errno := unix.RawSyscall6(unix.SYS_LINKAT, uintptr(w.root), uintptr(unsafe.Pointer(&text[0])), in.Fd(), uintptr(unsafe.Pointer(&text[at])), 0, 0)
		if errno != 0 && errno != unix.EEXIST {
			return errno
		}
	}
	return nil
}
