//go:build linux

package btrfs

import (
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	hiddenDir = ".snapfs"
	homeMark  = "snapfs btrfs home 1\n"

	snapshots = "snapshots"
	forks     = "forks"
	stock     = "stock"
	latest    = "latest"
	trash     = "trash"
	treeName  = "tree"
	markName  = "mark"
)

// hiddenName returns the name of this user's data directory in the directory top: ".snapfs", or a name with
// the user's id if .snapfs belongs to another user.
func hiddenName(top string) string {
	st, err := vfs.Lstat(unix.AT_FDCWD, top+sep(top)+hiddenDir)
	if err != nil || int(st.UID) == os.Geteuid() {
		return hiddenDir
	}
	return hiddenDir + "-" + strconv.Itoa(os.Geteuid())
}

func hash(s string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s) // it never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

// A dataDir is the open subdirectory of .snapfs that holds the snapshots and forks of one state directory.
// Paths are relative to it.
type dataDir struct{ fd int }

func (r dataDir) close() { unix.Close(r.fd) }

// enter opens the data directory in .snapfs, after it has checked that .snapfs is this user's: its owner,
// mode and ownership mark (a file). The caller must close it. Before the first write there is none:
// fs.ErrNotExist.
func (b *Backend) enter() (dataDir, error) {
	path := b.home()
	hidden, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return dataDir{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(hidden)
	var st unix.Stat_t
	if err := unix.Fstat(hidden, &st); err != nil {
		return dataDir{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || unix.Faccessat(hidden, markName, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return dataDir{}, &errs.Error{
			Kind: errs.ErrDenied, Path: path,
			Err:   errors.New("not a directory that snapfs made for this user"),
			Hints: []string{"mv " + errs.Quoted(path) + " " + errs.Quoted(path+".old")},
		}
	}
	fd, err := unix.Openat(hidden, b.key, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return dataDir{}, &os.PathError{Op: "open", Path: path + "/" + b.key, Err: err}
	}
	return dataDir{fd}, nil
}

// openOrCreate opens the data directory in .snapfs as enter does, and creates it if it does not exist.
func (b *Backend) openOrCreate() (dataDir, error) {
	r, err := b.enter()
	if !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	if err := b.build(); err != nil {
		return dataDir{}, err
	}
	return b.enter()
}

// build creates .snapfs, the directory with the backend's data, and in it the subdirectory for this state
// directory. It creates both under another name and renames them, so that they are complete when they appear.
// Repeatable.
func (b *Backend) build() error {
	top, err := unix.Open(b.top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: b.top, Err: err}
	}
	defer unix.Close(top)
	path := b.home()
	if _, err := vfs.Lstat(unix.AT_FDCWD, path); errors.Is(err, os.ErrNotExist) {
		err := b.buildHidden(top)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return &os.PathError{Op: "make", Path: path, Err: err}
		}
	}
	part := path + "/" + b.key
	removeIncomplete(part, false)
	tmp := part + "." + unique()
	err = b.buildPart(tmp)
	if err == nil {
		err = vfs.RenameNew(tmp, part)
	}
	if err == nil {
		return nil
	}
	_ = os.RemoveAll(tmp) // the first error is reported
	if errors.Is(err, os.ErrExist) {
		return nil // another process created it first
	}
	return &os.PathError{Op: "make", Path: part, Err: err}
}

func (b *Backend) buildPart(path string) error {
	for _, dir := range []string{"", snapshots, forks, stock, latest, trash} {
		if err := os.Mkdir(path+"/"+dir, 0o700); err != nil {
			return err
		}
	}
	return os.WriteFile(path+"/of", []byte(b.state+"\n"), 0o600)
}

func (b *Backend) buildHidden(top int) error {
	removeIncomplete(b.home(), true)
	tmp := b.hidden + "." + unique()
	if err := btrfs.Create(top, tmp); err != nil {
		return err
	}
	path := b.top + sep(b.top) + tmp
	err := os.Chmod(path, 0o700)
	if err == nil {
		err = os.WriteFile(path+"/"+markName, []byte(homeMark), 0o600)
	}
	if err == nil {
		err = unix.Renameat2(top, tmp, top, b.hidden, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		_ = os.RemoveAll(path) // the first error is reported
	}
	return err
}

// removeIncomplete removes the incomplete files or directories beside path that killed processes left while
// they made it; with subvolume set, btrfs subvolumes. Beside .snapfs, in a directory with other users' files,
// it removes only subvolumes of this user.
func removeIncomplete(path string, subvolume bool) {
	left, _ := filepath.Glob(path + ".*-*-*")
	for _, half := range left {
		st, err := vfs.Lstat(unix.AT_FDCWD, half)
		ours := err == nil && int(st.UID) == os.Geteuid() && (!subvolume || st.Ino == btrfs.RootInode)
		if ours && !proc.NameRuns(strings.TrimPrefix(half, path+".")) {
			_ = os.RemoveAll(half) // the next build tries again
		}
	}
}

// unique returns a new unique name for a directory that is being made. The name contains the identity of this
// process, so that other processes see whether it still runs or was killed.
func unique() string {
	return proc.Name() + "-" + strconv.FormatUint(next.Add(1), 36)
}

var next atomic.Uint64

// open returns a descriptor of the directory at path in the data directory, which the caller closes. It
// follows no symbolic link.
func (r dataDir) open(path string) (int, error) { return openIn(r.fd, path) }

// list returns the names of the entries in the directory at path in the data directory.
func (r dataDir) list(path string) ([]string, error) {
	fd, err := r.open(path)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// discard moves the entry at path to the trash, under a unique name that begins with as. An entry that does
// not exist is no error. Sweep deletes it.
func (r dataDir) discard(path, as string) error {
	err := unix.Renameat2(r.fd, path, r.fd, trash+"/"+as+"."+unique(), unix.RENAME_NOREPLACE)
	if err == unix.ENOENT || err == nil {
		return nil
	}
	return &os.PathError{Op: "remove", Path: path, Err: err}
}
