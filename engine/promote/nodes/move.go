package nodes

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// spareSuffix is the end of the name of a spare: a second name of a node during an exchange
// without kernel support. Where renameat2(2) supports RENAME_NOREPLACE and RENAME_EXCHANGE,
// each move between a stage and the tree is one step. Elsewhere (EINVAL: ZFS before 2.2, NFS,
// some FUSE filesystems), several steps replace it:
//
//   - into the tree, a file: link(2), which replaces nothing, and unlink(2). A directory:
//     lstat and rename(2), which replaces at most an empty directory.
//   - into the stage: rename(2), since no other program makes names there.
//   - exchange of two files: the file in the tree gets a second name in the stage, the
//     spare; rename(2) replaces it in the tree, so that a reader finds the old or the new
//     file at every instant; the spare gets the other file's name in the stage.
//   - exchange with a directory, or of a file that cannot be linked: the node in the tree
//     moves to the spare name, then the other moves into the tree. For an instant the path
//     does not exist.
//
// If another program renames its own file to the path between the link and the rename of an
// exchange, some microseconds, that file is lost. The old file never is: it has a name in the
// stage first. RepairMove completes or reverts a sequence that a kill or power cut
// interrupted; the locations of the inodes show how far it got.
const spareSuffix = "-"

// flagsUnsupported reports whether a rename failed because the filesystem does not support its
// flags.
func flagsUnsupported(err error) bool { return errors.Is(err, unix.EINVAL) }

// MoveIn moves the node staged from a stage, the private directory of a promotion, to the free name in the
// real directory dir. EEXIST: the name is not free.
func MoveIn(stage *os.File, staged string, dir *os.File, name string) error {
	err := rename(stage, staged, dir, name, vfs.RenameNoReplace)
	if !flagsUnsupported(err) {
		return err
	}
	st, err := vfs.Lstat(int(stage.Fd()), staged)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		err := unix.Linkat(int(stage.Fd()), staged, int(dir.Fd()), name, 0)
		if err == nil {
			return PathError("unlink", staged, unix.Unlinkat(int(stage.Fd()), staged, 0))
		}
		if !cannotLink(err) {
			return PathError("link", name, err)
		}
	}
	here, err := StatOrNil(dir, name)
	if err == nil && here != nil {
		err = PathError("rename", name, unix.EEXIST)
	}
	if err == nil {
		err = rename(stage, staged, dir, name, 0)
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) { // another program was faster
		err = PathError("rename", name, unix.EEXIST)
	}
	return err
}

// cannotLink reports whether link(2) can never succeed for a file: this user may not link it
// (protected_hardlinks, proc(5)), it has too many links, or the filesystem has no hard links.
func cannotLink(err error) bool {
	return err == unix.EPERM || err == unix.EMLINK || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}

// MoveOut moves the node name from the real directory dir to the free name staged in a stage, the private
// directory of a promotion. EEXIST: that name is not free.
func MoveOut(dir *os.File, name string, stage *os.File, staged string) error {
	err := rename(dir, name, stage, staged, vfs.RenameNoReplace)
	if !flagsUnsupported(err) {
		return err
	}
	there, err := StatOrNil(stage, staged)
	if err == nil && there != nil {
		err = PathError("rename", staged, unix.EEXIST)
	}
	if err == nil {
		err = rename(dir, name, stage, staged, 0)
	}
	return err
}

// Exchange exchanges the node staged of a stage, the private directory of a promotion, with name in the real
// directory dir. Where that takes several steps, an error may leave some of them done: RepairMove reverts them.
func Exchange(stage *os.File, staged string, dir *os.File, name string) error {
	err := rename(stage, staged, dir, name, vfs.RenameExchange)
	if !flagsUnsupported(err) {
		return err
	}
	here, err := vfs.Lstat(int(dir.Fd()), name)
	if err != nil {
		return err
	}
	there, err := vfs.Lstat(int(stage.Fd()), staged)
	if err != nil {
		return err
	}
	spare, linked := staged+spareSuffix, false
	if !here.IsDir() && !there.IsDir() {
		err := unix.Linkat(int(dir.Fd()), name, int(stage.Fd()), spare, 0)
		if linked = err == nil; !linked && !cannotLink(err) {
			return PathError("link", name, err)
		}
	}
	if linked {
		err = rename(stage, staged, dir, name, 0)
	} else if err = rename(dir, name, stage, spare, 0); err == nil {
		err = MoveIn(stage, staged, dir, name)
	}
	if err != nil {
		return err // RepairMove reverts the steps done
	}
	return rename(stage, spare, stage, staged, 0)
}

// RepairMove completes or reverts a move between staged in a stage, the private directory of a promotion, and name in
// the real directory dir (nil for none) that was interrupted between its steps. put means that the move was one into
// dir, a MoveIn. It returns false if another program has put a node where one would have to go.
func RepairMove(stage *os.File, staged string, dir *os.File, name string, put bool) (bool, error) {
	spare := staged + spareSuffix
	aside, err := StatOrNil(stage, spare)
	if err != nil {
		return false, err
	}
	there, err := StatOrNil(stage, staged)
	if err != nil {
		return false, err
	}
	var here *vfs.Stat
	if dir != nil {
		if here, err = StatOrNil(dir, name); err != nil {
			return false, err
		}
	}
	switch {
	case aside == nil && sameInode(here, there): // linked into the tree, and still in the stage
		if put {
			return true, PathError("unlink", name, unix.Unlinkat(int(dir.Fd()), name, 0))
		}
		return true, PathError("unlink", staged, unix.Unlinkat(int(stage.Fd()), staged, 0))
	case aside == nil:
		return true, nil
	case there == nil:
		return true, rename(stage, spare, stage, staged, 0)
	case sameInode(here, aside):
		return true, PathError("unlink", spare, unix.Unlinkat(int(stage.Fd()), spare, 0))
	case sameInode(here, there):
		err := PathError("unlink", staged, unix.Unlinkat(int(stage.Fd()), staged, 0))
		if err == nil {
			err = rename(stage, spare, stage, staged, 0)
		}
		return true, err
	case dir == nil || here != nil:
		return false, nil
	}
	err = MoveIn(stage, spare, dir, name)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return true, err
}

func sameInode(a, b *vfs.Stat) bool {
	return a != nil && b != nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// rename moves a node between two open directories, with the flags of renameat2(2). Moving a
// directory writes its ".." entry: an owner without write permission gets it here, and
// RestoreMode takes it away again.
func rename(from *os.File, old string, to *os.File, new string, flags uint) error {
	err := vfs.RenameAt(int(from.Fd()), old, int(to.Fd()), new, flags)
	if err == unix.EACCES {
		widened, other := widenDir(from, old), widenDir(to, new) // both: an exchange moves two
		if widened || other {
			err = vfs.RenameAt(int(from.Fd()), old, int(to.Fd()), new, flags)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: new, Err: err}
	}
	return nil
}

// widenDir gives the owner of a directory write permission, without which the kernel does not move the
// directory. It reports whether the permission was missing and could be given.
func widenDir(in *os.File, name string) bool {
	st, err := vfs.Lstat(int(in.Fd()), name)
	if err != nil || !st.IsDir() || st.Mode&unix.S_IWUSR != 0 || int(st.UID) != os.Geteuid() {
		return false
	}
	node, err := Open(in, name)
	if err != nil {
		return false
	}
	defer node.Close()
	return Chmod(node, st.Mode&0o7777|unix.S_IWUSR) == nil
}

// RestoreMode takes the permissions away again that rename gave a directory in order to move it. want is the
// directory's identity with the mode to restore.
func RestoreMode(in *os.File, name string, want Ident) error {
	if want.Mode&unix.S_IFMT != unix.S_IFDIR || want.Mode&unix.S_IWUSR != 0 {
		return nil
	}
	node, err := Open(in, name)
	if err != nil {
		return err
	}
	defer node.Close()
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil || !want.SameNode(&st) {
		return err
	}
	return Chmod(node, want.Mode&0o7777)
}

// PathError returns err with its operation and path; nil if err is nil.
func PathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// Remove removes the node name from dir, with everything below it. st is its stat; if that is nil, Remove
// does nothing. After an error part of it may be left.
func Remove(dir *os.File, name string, st *vfs.Stat) error {
	switch {
	case st == nil:
		return nil
	case st.IsDir():
		return removeDir(dir, name)
	}
	return PathError("unlink", name, unix.Unlinkat(int(dir.Fd()), name, 0))
}

// Empty removes everything from an open directory except the name keep. It fails at a mount point, which is
// busy. After an error some of it may be left.
func Empty(dir *os.File, keep string) error {
	list, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Name == keep {
			continue
		}
		err := unix.Unlinkat(int(dir.Fd()), e.Name, 0)
		if err == unix.EISDIR {
			err = removeDir(dir, e.Name)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "remove", Path: e.Name, Err: err}
		}
	}
	return nil
}

func removeDir(in *os.File, name string) error {
	node, err := Open(in, name)
	if err != nil {
		return err
	}
	err = Chmod(node, 0o700) // its mode may deny access to its owner
	node.Close()
	if err != nil {
		return err
	}
	dir, err := vfs.OpenDir(int(in.Fd()), name)
	if err != nil {
		return err
	}
	err = Empty(dir, "")
	dir.Close()
	if err != nil {
		return err
	}
	return unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR)
}
