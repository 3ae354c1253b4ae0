package sendstream

import (
	"errors"
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// As an ordinary user, what a stream does to a node is subject to the modes that it has
// been given, which for root, who wrote it, forbid nothing.

// A lift is a node whose owner may do with it what he likes, for a while.
type lift struct {
	fd   int
	mode uint32
}

// lifting carries out a command that modes forbid, with those changed meanwhile.
func (a *applier) lifting(c *command, do func(*applier, *command) error) (err error) {
	var lifts []lift
	defer func() {
		for i := len(lifts) - 1; i >= 0; i-- { // the innermost first
			err = errors.Join(err, unix.Chmod(vfs.PathTo(lifts[i].fd), lifts[i].mode))
			unix.Close(lifts[i].fd)
		}
	}()
	for _, at := range []attr{aPath, aPathTo, aPathLink, aClonePath} {
		if !c.has[at] || at == aPathLink && c.op == Symlink {
			continue
		}
		path := string(c.parts[at])
		if path != "" {
			if path, err = checked(path); err != nil {
				return err
			}
		}
		if lifts, err = a.lift(lifts, path, itself(c, at)); err != nil {
			return err
		}
	}
	return do(a, c)
}

// itself: the command needs to write to what the path names, or to read it.
func itself(c *command, at attr) bool {
	switch c.op {
	case Write, Truncate, Clone:
		return true
	case Rename: // of a directory, whose parent is noted in it
		return at == aPath
	case SetXattr, RemoveXattr: // to set an access list takes no more than to own the node, and changes the mode
		return strings.HasPrefix(string(c.parts[aXattrName]), "user.")
	}
	return false
}

// lift lifts the directories that lead to a path, and with it that, and adds what it changed.
func (a *applier) lift(lifts []lift, path string, it bool) ([]lift, error) {
	ends := []int{0}
	for i := range path {
		if path[i] == '/' {
			ends = append(ends, i)
		}
	}
	if it && path != "" {
		ends = append(ends, len(path))
	}
	for _, end := range ends {
		var fd int
		var err error
		if end == 0 {
			fd, err = unix.FcntlInt(uintptr(a.root), unix.F_DUPFD_CLOEXEC, 0)
		} else {
			fd, err = vfs.OpenBeneathFD(a.root, path[:end], vfs.OPath|unix.O_NOFOLLOW, 0)
		}
		if err != nil {
			return lifts, err
		}
		mode, err := more(fd)
		if err != nil || mode == nil {
			unix.Close(fd)
			if err != nil {
				return lifts, err
			}
			continue
		}
		lifts = append(lifts, lift{fd, *mode})
	}
	return lifts, nil
}

// more lets the owner of a node read and write it, and answers with the mode that it had, or
// with nil where there is nothing to change, or it is not this user's to change.
func more(fd int) (was *uint32, err error) {
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return nil, err
	}
	var need uint32
	switch {
	case st.IsDir():
		need = 0o700
	case st.IsRegular():
		need = 0o600
	}
	mode := st.Mode & 0o7777
	if mode&need == need {
		return nil, nil
	}
	switch err := unix.Chmod(vfs.PathTo(fd), mode|need); {
	case errors.Is(err, os.ErrPermission):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &mode, nil
}

// withheld: the error is that an attribute is not an ordinary user's to change; it is left out then.
func (a *applier) withheld(c *command, name string, err error) bool {
	if a.chowns || !errors.Is(err, unix.EPERM) || !strings.HasPrefix(name, "trusted.") && !strings.HasPrefix(name, "security.") {
		return false
	}
	if a.leftOut != nil {
		a.leftOut(string(c.parts[aPath]), name)
	}
	return true
}
