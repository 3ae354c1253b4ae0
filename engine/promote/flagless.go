package promote

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Moving between a stage and the tree. Where renameat2(2) knows RENAME_NOREPLACE and
// RENAME_EXCHANGE, each is one step. Where it does not (EINVAL: ZFS before 2.2, NFS, some
// FUSE filesystems), several stand for it:
//
//   - into place, of a file: link(2), which replaces nothing, and unlink(2). Of a directory:
//     a look, and rename(2), which replaces at most an empty directory.
//   - into the stage: rename(2), since nobody else makes names there.
//   - exchange, of two files: the one in the tree gets a second name in the stage, its
//     spare; rename(2) puts the other in its place, so that a reader finds the old one or
//     the new one at every instant; the spare takes the other's name in the stage.
//   - exchange with a directory, or of what may not be linked: the one in the tree is
//     moved to the spare name, the other into place: for an instant there is none.
//
// A program that puts a file of its own there by rename(2), between the link and
// the rename of an exchange of files, some microseconds, loses that file. Nothing that was
// there before is ever lost: it has a name in the stage first. What a
// kill or a power cut leaves between the steps, unravel sees by where the inodes are.
const spareSuffix = "-"

// flagless reports whether a rename failed because its flags are not known.
func flagless(err error) bool { return errors.Is(err, unix.EINVAL) }

// intoPlace moves a node of the stage where nothing is. EEXIST: something is.
func intoPlace(stage *os.File, staged string, dir *os.File, name string) error {
	err := rename(stage, staged, dir, name, vfs.RenameNoReplace)
	if !flagless(err) {
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
		if !unlinkable(err) {
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
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) { // somebody was faster
		err = pathError("rename", name, unix.EEXIST)
	}
	return err
}

// unlinkable: this user may not link that (protected_hardlinks, proc(5)), or it can
// have no more names, or nothing can there.
func unlinkable(err error) bool {
	return err == unix.EPERM || err == unix.EMLINK || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}

// intoStage moves a node of the tree into the stage, under a name that is free.
func intoStage(dir *os.File, name string, stage *os.File, staged string) error {
	err := rename(dir, name, stage, staged, vfs.RenameNoReplace)
	if !flagless(err) {
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
	if !flagless(err) {
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
		if linked = err == nil; !linked && !unlinkable(err) {
			return pathError("link", name, err)
		}
	}
	if linked {
		err = rename(stage, staged, dir, name, 0)
	} else if err = rename(dir, name, stage, spare, 0); err == nil {
		err = intoPlace(stage, staged, dir, name)
	}
	if err != nil {
		return err // what there is of it, unravel takes back
	}
	return rename(stage, spare, stage, staged, 0)
}

// unravel brings what a kill left between the steps of one of these to the state
// before or after it. false: others have put something where it would have to go.
func unravel(o *op, stage, dir *os.File, name string) (bool, error) {
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
	case aside == nil && sameInode(here, there): // moved into place, and still in the stage
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
	err = intoPlace(stage, spare, dir, name)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return true, err
}

func sameInode(a, b *vfs.Stat) bool {
	return a != nil && b != nil && a.Ino == b.Ino && a.Dev == b.Dev
}
