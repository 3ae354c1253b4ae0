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
	"sync"
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

// hiddenName is .snapfs, or where that belongs to another user, a name with
// this user's id in it.
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

// A room is our part of .snapfs, open: all paths are relative to it.
type room struct{ fd int }

func (r room) close() { unix.Close(r.fd) }

// enter opens the room. What is not ours, by its owner, its mode or its mark,
// is not entered. fs.ErrNotExist: nothing has been written yet.
func (b *Backend) enter() (room, error) {
	path := b.Hidden()[0]
	hidden, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return room{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(hidden)
	var st unix.Stat_t
	if err := unix.Fstat(hidden, &st); err != nil {
		return room{}, &os.PathError{Op: "look at", Path: path, Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || unix.Faccessat(hidden, markName, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return room{}, &problem{
			kind: errs.ErrDenied, path: path,
			why:   "it is not a directory that snapfs made for this user",
			hints: []string{"mv " + path + " " + path + ".old"},
		}
	}
	fd, err := unix.Openat(hidden, b.key, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return room{}, &os.PathError{Op: "open", Path: path + "/" + b.key, Err: err}
	}
	return room{fd}, nil
}

// settle opens the room, and makes it first where it is missing.
func (b *Backend) settle() (room, error) {
	r, err := b.enter()
	if !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	if err := b.build(); err != nil {
		return room{}, err
	}
	return b.enter()
}

// build makes .snapfs and our part of it. Both are made under another name and
// renamed, so that they are never seen half made; repeating it is harmless.
func (b *Backend) build() error {
	top, err := unix.Open(b.top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: b.top, Err: err}
	}
	defer unix.Close(top)
	path := b.Hidden()[0]
	if _, err := vfs.Lstat(unix.AT_FDCWD, path); errors.Is(err, os.ErrNotExist) {
		err := b.buildHidden(top)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return &os.PathError{Op: "make", Path: path, Err: err}
		}
	}
	part := path + "/" + b.key
	reapHalfBuilt(part, false)
	tmp := part + "." + unique()
	err = b.buildPart(tmp)
	if err == nil {
		err = vfs.RenameNew(tmp, part)
	}
	if err == nil {
		return nil
	}
	_ = os.RemoveAll(tmp) // the cause matters more
	if errors.Is(err, os.ErrExist) {
		return nil // another process was quicker
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
	reapHalfBuilt(b.Hidden()[0], true)
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
		_ = os.RemoveAll(path) // the cause matters more
	}
	return err
}

// reapHalfBuilt removes what killed processes left beside path of building it.
// Beside .snapfs, where others have names too, only a subvolume is ours.
func reapHalfBuilt(path string, subvolume bool) {
	left, _ := filepath.Glob(path + ".*-*-*")
	for _, half := range left {
		st, err := vfs.Lstat(unix.AT_FDCWD, half)
		ours := err == nil && int(st.UID) == os.Geteuid() && (!subvolume || st.Ino == btrfs.RootInode)
		if ours && !inUse(strings.TrimPrefix(half, path+".")) {
			_ = os.RemoveAll(half) // the next to build tries again
		}
	}
}

// unique is a name that nothing else has, and that says which process gave it.
func unique() string {
	return strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(started(), 10) + "-" + strconv.FormatUint(next.Add(1), 36)
}

var (
	next      atomic.Uint64
	startOnce sync.Once
	startedAt uint64
)

// started is when this process started, 0 where /proc does not say.
func started() uint64 {
	startOnce.Do(func() {
		if p, err := proc.Identify(os.Getpid()); err == nil {
			startedAt = p.Start
		}
	})
	return startedAt
}

// inUse reports whether the process that gave a unique name still runs.
func inUse(name string) bool {
	var p proc.Process
	parts := strings.SplitN(name, "-", 3)
	if len(parts) < 3 {
		return false
	}
	pid, err1 := strconv.Atoi(parts[0])
	start, err2 := strconv.ParseUint(parts[1], 10, 64)
	p.PID, p.Start = pid, start
	return err1 == nil && err2 == nil && (start == 0 || proc.Alive(p))
}

// open opens a directory of the room; no link leads anywhere else.
func (r room) open(path string) (int, error) { return beneath(r.fd, path) }

// list names what is in a directory of the room.
func (r room) list(path string) ([]string, error) {
	fd, err := r.open(path)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// discard moves an entry to the trash. It is no error when it is not there.
func (r room) discard(path, as string) error {
	err := unix.Renameat2(r.fd, path, r.fd, trash+"/"+as+"."+unique(), unix.RENAME_NOREPLACE)
	if err == unix.ENOENT || err == nil {
		return nil
	}
	return &os.PathError{Op: "remove", Path: path, Err: err}
}
