package hostfs

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
)

// Privileged reports whether this process runs as root and may make any mount. Sandboxes then can have user
// and group ids of their own.
func Privileged() bool { return os.Geteuid() == 0 }

// CheckWorkspace returns an error if a directory cannot be the workspace of a sandbox, such as one in /proc.
func (hf *Host) CheckWorkspace(dir string) error {
	refuse := func(kind error, why string) error {
		return &errs.Error{Op: "copying", Path: dir, Kind: kind, Err: errors.New(why)}
	}
	real, err := filepath.EvalSymlinks(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return refuse(errs.ErrNotFound, "no such directory")
	case err != nil:
		return errs.With("copying", dir, err)
	case real != dir:
		return refuse(errs.ErrNotSupported, "the workspace is a symbolic link to "+real)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return errs.With("copying", dir, err)
	case !info.IsDir():
		return &errs.Error{
			Op: "copying", Path: dir, Kind: errs.ErrInvalid, Err: errors.New("the workspace is a file, not a directory"),
			Hints: []string{"snapfs run -C " + errs.Quoted(filepath.Dir(dir)) + " -- COMMAND"},
		}
	case Within(dir, hf.cat.Dir()):
		return refuse(errs.ErrNotSupported, "the workspace lies in snapfs's own state, inside another sandbox")
	}
	for _, d := range []string{"/proc", "/sys", "/dev"} {
		if Within(dir, d) {
			return refuse(errs.ErrNotSupported, "a sandbox has its own "+d)
		}
	}
	if dir == "/tmp" || dir == "/run" { // their subdirectories work: the sandbox mounts those in its own
		return &errs.Error{
			Op: "copying", Path: dir, Kind: errs.ErrNotSupported, Err: errors.New("a sandbox has its own " + dir + ", and what it writes there is lost"),
			Hints: []string{"snapfs run -C " + errs.Quoted(dir+"/DIRECTORY") + " -- COMMAND"},
		}
	}
	return nil
}

// Workspace returns the workspace for a command that starts in dir: the git work tree that holds dir, else
// dir itself, with symbolic links resolved.
func Workspace(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return d, nil
		}
	}
	return dir, nil
}

// WorkspacesAt returns the directories that can be the workspace of a sandbox made in dir: what
// [Workspace] returns, and dir itself if that differs.
func WorkspacesAt(dir string) ([]string, error) {
	workspace, err := Workspace(dir)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != workspace {
		return []string{workspace, real}, nil
	}
	return []string{workspace}, nil
}
