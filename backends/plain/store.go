package plain

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/snapfs/snapfs/internal/trash"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A kind is either snapshot or fork: word is its name in texts, dir the name of the directory with all of
// that kind.
type kind struct{ word, dir string }

var (
	snapshots = kind{"snapshot", "snapshots"}
	forks     = kind{"fork", "forks"}
)

const part = ".part" // no id contains a dot

func (b *backend) trash() string { return filepath.Join(b.dir, "trash") }

func (b *backend) path(k kind, name string) string { return filepath.Join(b.dir, k.dir, name) }

func (b *backend) treePath(k kind, id string) string { return filepath.Join(b.dir, k.dir, id, "tree") }

// uniqueName returns a unique name, which begins with prefix, for an entry of the trash, where snapshots and
// forks are made and deleted.
func uniqueName(prefix string) string { return prefix + strconv.FormatUint(rand.Uint64(), 36) }

// begin makes the directory <id>.part of the snapshot or fork m, with the text file that describes it, to be
// filled with the copy.
func (b *backend) begin(ctx context.Context, m mark) error {
	for _, dir := range []string{b.trash(), b.path(m.kind, "")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(b.path(m.kind, m.id)); err == nil {
		return &fs.PathError{Op: "mkdir", Path: b.path(m.kind, m.id), Err: unix.EEXIST}
	}
	born := filepath.Join(b.trash(), uniqueName(newborn))
	if err := makeMarked(ctx, born, m); err != nil {
		_ = os.RemoveAll(born) // otherwise Sweep deletes it
		return err
	}
	return nil
}

// makeMarked makes the directory born in the trash, writes m into it, the text file that describes the
// snapshot or fork, and renames it to <id>.part, so that no such directory lacks that file.
func makeMarked(ctx context.Context, born string, m mark) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"make the directory", func() error { return os.Mkdir(born, 0o700) }},
		{"drop the inherited ACL", func() error { return forgetDefaultACL(born) }},
		{"write the mark", func() error { return os.WriteFile(filepath.Join(born, "mark"), []byte(m.text()), 0o600) }},
		{"make the tree's root", func() error { return os.Mkdir(filepath.Join(born, "tree"), 0o700) }},
		{"make the directory for hard links", func() error { return os.Mkdir(filepath.Join(born, "links"), 0o700) }},
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

// renameNew renames the directory from of a snapshot or fork to the free name to. An existing one is never an
// empty directory, which rename(2) would replace; RENAME_NOREPLACE also protects a file, if the filesystem
// supports the flag.
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

// publish gives the snapshot or fork m, whose copy is complete, its final name: it renames <id>.part to <id>.
// Atomic.
func (b *backend) publish(ctx context.Context, m mark) error {
	half := b.path(m.kind, m.id+part)
	if err := fault.Point(ctx, "remove the directory for hard links"); err != nil {
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

// discard moves the snapshot or fork in the directory name of the kind k into the trash and deletes it at
// once.
func (b *backend) discard(k kind, name string) {
	dead := uniqueName("failed-")
	if renameNew(b.path(k, name), filepath.Join(b.trash(), dead)) == nil {
		// A later sweep deletes the rest.
		_ = trash.Delete(context.Background(), b.trash(), dead)
	}
}

// read reads the mark in the directory name of the kind k, the text file that describes the snapshot or fork
// id. ErrNotFound: there is no such directory, or it is another program's.
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
	buf := make([]byte, 32<<10) // a path has 4 KiB, and at most four times that when quoted
	n, err := f.Read(buf)
	if n == 0 {
		return "", &errs.Error{Kind: errs.ErrCorrupt, Err: fmt.Errorf("the mark is empty: %w", err)}
	}
	return string(buf[:n]), nil
}

// ids returns the sorted ids of this backend's snapshots or forks, as k says, complete or not.
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
			continue // not an entry of this backend
		}
		found = append(found, T(id))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
