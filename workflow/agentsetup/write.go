package agentsetup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
)

// Write makes the edit: it replaces the file atomically, with the mode that it had, or removes it. If the
// file is a symbolic link, its target is replaced. Errors: errs.ErrBusy if the file is no longer as in
// Before; then nothing has changed.
func (e Edit) Write() error {
	path := e.Path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		now, err = nil, nil
	}
	if err != nil {
		return errs.With("writing", path, err)
	}
	if !bytes.Equal(now, e.Before) {
		return errs.New("writing", path, errs.ErrBusy, "another program has just changed it")
	}
	if e.After == nil {
		return errs.With("removing", path, os.Remove(path))
	}
	return errs.With("writing", path, replace(path, e.After))
}

func replace(path string, text []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	info, err := os.Stat(path)
	if err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".snapfs-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err = f.Chmod(mode); err == nil && info != nil {
		err = sameOwner(f, info)
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
