package promote

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
// stage first. repairMove completes or reverts a sequence that a kill or power cut
// interrupted; the locations of the inodes show how far it got.
const spareSuffix = "-"

// flagsUnsupported reports whether a rename failed because the filesystem does not support its
// flags.
func flagsUnsupported(err error) bool { return errors.Is(err, unix.EINVAL) }

// moveIn moves a node of the stage to a free path. EEXIST: the path is not free.
func moveIn(stage *os.File, staged string, dir *os.File, name string) error {
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
			return pathError("unlink", staged, unix.Unlinkat(int(stage.Fd()), staged, 0))
		}
		if !cannotLink(err) {
			return pathError("link", name, err)
		}
	}
	here, err := statOrNil(dir, name)
	if err == nil && here != nil {
		err = pathError("rename", name, unix.EEXIST)
	}
	if err == nil {
		err = rename(stage, staged, dir, name, 0)
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) { // another program was faster
		err = pathError("rename", name, unix.EEXIST)
	}
	return err
}

// cannotLink reports whether link(2) can never succeed for a file: this user may not link it
// (protected_hardlinks, proc(5)), it has too many links, or the filesystem has no hard links.
func cannotLink(err error) bool {
	return err == unix.EPERM || err == unix.EMLINK || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}

// moveOut moves a node of the tree into the stage, to a free name.
func moveOut(dir *os.File, name string, stage *os.File, staged string) error {
	err := rename(dir, name, stage, staged, vfs.RenameNoReplace)
	if !flagsUnsupported(err) {
		return err
	}
	there, err := statOrNil(stage, staged)
	if err == nil && there != nil {
		err = pathError("rename", staged, unix.EEXIST)
	}
	if err == nil {
		err = rename(dir, name, stage, staged, 0)
	}
	return err
}

// exchange exchanges a node of the stage with one of the tree.
func exchange(stage *os.File, staged string, dir *os.File, name string) error {
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
			return pathError("link", name, err)
		}
	}
	if linked {
		err = rename(stage, staged, dir, name, 0)
	} else if err = rename(dir, name, stage, spare, 0); err == nil {
		err = moveIn(stage, staged, dir, name)
	}
	if err != nil {
		return err // repairMove reverts the steps done
	}
	return rename(stage, spare, stage, staged, 0)
}

// repairMove completes or reverts a move of o, between stage and the real directory dir, that
// was interrupted between its steps. It returns false if another program has put a node where
// one would have to go.
func repairMove(o *op, stage, dir *os.File, name string) (bool, error) {
	spare := o.name + spareSuffix
	aside, err := statOrNil(stage, spare)
	if err != nil {
		return false, err
	}
	there, err := statOrNil(stage, o.name)
	if err != nil {
		return false, err
	}
	var here *vfs.Stat
	if dir != nil {
		if here, err = statOrNil(dir, name); err != nil {
			return false, err
		}
	}
	switch {
	case aside == nil && sameInode(here, there): // linked into the tree, and still in the stage
		if o.verb == put {
			return true, pathError("unlink", name, unix.Unlinkat(int(dir.Fd()), name, 0))
		}
		return true, pathError("unlink", o.name, unix.Unlinkat(int(stage.Fd()), o.name, 0))
	case aside == nil:
		return true, nil
	case there == nil:
		return true, rename(stage, spare, stage, o.name, 0)
	case sameInode(here, aside):
		return true, pathError("unlink", spare, unix.Unlinkat(int(stage.Fd()), spare, 0))
	case sameInode(here, there):
		err := pathError("unlink", o.name, unix.Unlinkat(int(stage.Fd()), o.name, 0))
		if err == nil {
			err = rename(stage, spare, stage, o.name, 0)
		}
		return true, err
	case dir == nil || here != nil:
		return false, nil
	}
	err = moveIn(stage, spare, dir, name)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return true, err
}

func sameInode(a, b *vfs.Stat) bool {
	return a != nil && b != nil && a.Ino == b.Ino && a.Dev == b.Dev
}
