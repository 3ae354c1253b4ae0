package patch

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// giveTimes sets the times of directories. Those that are not there are left out.
func (a *applier) giveTimes(times map[string]kernel.Timestamp) error {
	var errs []error
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(times))) {
		f, err := kernel.OpenBeneath(a.root, path, openPath|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err == nil {
			err = setTime(f, times[path])
			f.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func setTime(f *os.File, t kernel.Timestamp) error {
	if err := kernel.SetTimes(int(f.Fd()), nil, t); err != nil {
		return &os.PathError{Op: "setting the time", Path: f.Name(), Err: err}
	}
	return nil
}

// describe gives an open node, O_PATH will do, all but its content. The order
// matters: a new owner clears set-id bits and capabilities, and a list of access
// rights sets permission bits.
func describe(f *os.File, want *facts) error {
	is, err := factsAt(f)
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	if is.UID != want.UID || is.GID != want.GID {
		if err := kernel.SetOwner(fd, int(want.UID), int(want.GID)); err != nil {
			return &os.PathError{Op: "chown", Path: f.Name(), Err: err}
		}
		if is, err = factsAt(f); err != nil {
			return err
		}
	}
	if err := setXattrs(fd, is.Xattrs, want.Xattrs); err != nil {
		return err
	}
	if !want.is(typeLink) {
		if err := unix.Chmod(kernel.FDPath(f), uint32(want.Mode&0o7777)); err != nil {
			return &os.PathError{Op: "chmod", Path: f.Name(), Err: err}
		}
	}
	t, err := want.MTime.time()
	if err != nil {
		return err
	}
	return setTime(f, t)
}

func setXattrs(fd int, is, want []attr) error {
	has := map[raw]string{}
	for _, x := range is {
		has[x.Name] = string(x.Value)
	}
	for _, x := range want {
		if value, ok := has[x.Name]; !ok || value != string(x.Value) {
			if err := kernel.SetXattr(fd, "", string(x.Name), x.Value, 0); err != nil {
				return err
			}
		}
		delete(has, x.Name)
	}
	for name := range has {
		if strings.HasPrefix(string(name), "security.") && name != "security.capability" {
			continue // a security module's own
		}
		if err := kernel.RemoveXattr(fd, "", string(name)); err != nil {
			return err
		}
	}
	return nil
}
