package plain

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A kind is one of the two sorts of tree that are kept.
type kind struct{ word, dir string }

var (
	snapshots = kind{"snapshot", "snapshots"}
	forks     = kind{"fork", "forks"}
)

const part = ".part" // no id has a dot in it

func (b *backend) trash() string { return filepath.Join(b.dir, "trash") }

func (b *backend) path(k kind, name string) string { return filepath.Join(b.dir, k.dir, name) }

func (b *backend) treePath(k kind, id string) string { return filepath.Join(b.dir, k.dir, id, "tree") }

// fresh is a name that nothing in the trash has.
func fresh(prefix string) string { return prefix + strconv.FormatUint(rand.Uint64(), 36) }

// begin makes the half-made <id>.part with its mark in it.
func (b *backend) begin(ctx context.Context, m mark) error {
	for _, dir := range []string{b.trash(), b.path(m.kind, "")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(b.path(m.kind, m.id)); err == nil {
		return &fs.PathError{Op: "mkdir", Path: b.path(m.kind, m.id), Err: unix.EEXIST}
	}
	born := filepath.Join(b.trash(), fresh(newborn))
	if err := bear(ctx, born, m); err != nil {
		_ = os.RemoveAll(born) // else the sweeper will
		return err
	}
	return nil
}

// bear makes a marked directory in the trash and renames it out of it.
func bear(ctx context.Context, born string, m mark) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"make the directory", func() error { return os.Mkdir(born, 0o700) }},
		{"drop the ACL it inherited", func() error { return forgetDefaultACL(born) }},
		{"write the mark", func() error { return os.WriteFile(filepath.Join(born, "mark"), []byte(m.text()), 0o600) }},
		{"make the tree's root", func() error { return os.Mkdir(filepath.Join(born, "tree"), 0o700) }},
		{"make room for hard links", func() error { return os.Mkdir(filepath.Join(born, "links"), 0o700) }},
		{"take the name", func() error {
			home := filepath.Join(filepath.Dir(filepath.Dir(born)), m.kind.dir)
			return renameNew(born, filepath.Join(home, m.id+part))
		}},
	}
	for _, s := range steps {
		if err := fault.Point(ctx, s.what); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	return nil
}

// renameNew renames a directory to a name that is free. What already has the
// name is never empty, so that an ordinary rename will not replace it; the
// flag also refuses to replace a file, where the filesystem knows the flag.
func renameNew(from, to string) error {
	err := vfs.RenameAt(unix.AT_FDCWD, from, unix.AT_FDCWD, to, vfs.RenameNoReplace)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		err = unix.Rename(from, to)
	}
	if err != nil {
		return &fs.PathError{Op: "rename", Path: to, Err: err}
	}
	return nil
}

// publish gives what begin made its name. Atomic.
func (b *backend) publish(ctx context.Context, m mark) error {
	half := b.path(m.kind, m.id+part)
	if err := fault.Point(ctx, "remove the room for hard links"); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(half, "links")); err != nil {
		return err
	}
	if err := fault.Point(ctx, "rename the copy into place"); err != nil {
		return err
	}
	return renameNew(half, b.path(m.kind, m.id))
}

// discard takes a directory of ours away, and its space back now.
func (b *backend) discard(k kind, name string) {
	dead := fresh("failed-")
	if renameNew(b.path(k, name), filepath.Join(b.trash(), dead)) == nil {
		// What cannot be cleared now, a later sweep will try again.
		_ = b.clear(context.Background(), []string{dead})
	}
}

// read finds the mark of what is called name and has the id. ErrNotFound also
// where something has that name but is not ours.
func (b *backend) read(k kind, id, name string) (mark, error) {
	dir := b.path(k, name)
	fd, err := unix.Open(dir, vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.ENOENT
	}
	if err != nil {
		return mark{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	text, err := readMark(fd)
	if err != nil {
		return mark{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	m, err := parseMark(k, id, text)
	if err != nil {
		return mark{}, &fs.PathError{Op: "read", Path: dir, Err: err}
	}
	return m, nil
}

func readMark(dir int) (string, error) {
	fd, err := unix.Openat(dir, "mark", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "mark")
	defer f.Close()
	buf := make([]byte, 32<<10) // a path is 4 KiB, quoted at most four times that
	n, err := f.Read(buf)
	if n == 0 {
		return "", &reason{errs.ErrCorrupt, "the mark is empty: " + err.Error()}
	}
	return string(buf[:n]), nil
}

// ids lists what is ours of a kind, whole or half made, sorted.
func ids[T ~string](b *backend, k kind) ([]T, error) {
	entries, err := os.ReadDir(b.path(k, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []T
	for _, e := range entries {
		id := strings.TrimSuffix(e.Name(), part)
		if !snapshot.ValidID(id) {
			continue
		}
		_, err := b.read(k, id, e.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errs.ErrNotFound) {
			continue // not ours
		}
		found = append(found, T(id))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
