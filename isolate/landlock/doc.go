// Package landlock limits what the processes of a container may do with paths, by the kernel's Landlock (landlock(7)):
// which programs they may execute, which files they may write and which they may read. It only allows: what no list
// names is denied, with everything below it. A rule belongs to the file or directory that is at a path when the
// container starts, and holds for every other path that leads to it by its directories, such as one below
// /proc/self/root. A file that moves to another directory never gains rights by that (EXDEV). A process that enters a
// ruleset cannot leave it, and no process outside of it that is in another one can trace it.
package landlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// ErrOld is in the chain of the error of a container that does not start because the host's kernel has no Landlock, or
// one too old for its lists of paths.
var ErrOld = errors.New("the kernel's Landlock is missing or too old")

// Versions of Landlock that lists of paths need.
const (
	ExecuteABI = 2 // an older one always denies renames between directories
	WriteABI   = 3 // an older one has no right to truncate
	ReadABI    = 2 // as ExecuteABI
)

// AlwaysWritable are the container's own directories, which its processes may always write to. The kernel itself
// guards /proc.
var AlwaysWritable = [...]string{"/tmp", "/dev", "/run", "/proc"}

// AlwaysReadable are the directories that its processes may always read: the container's own ones, and those in which
// programs, their libraries and the settings of the system are. The kernel itself guards /proc and /sys.
var AlwaysReadable = [...]string{
	"/tmp", "/dev", "/run", "/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store",
}

// Rules are lists of absolute paths inside a container. A nil list restricts nothing. A path that does not exist when
// the container starts is skipped, and so is one with a symbolic link, which may be work of a command in an earlier
// container of the same trees.
type Rules struct {
	// Execute are the only programs that can be executed, and directories with everything below them, besides the
	// dynamic linkers.
	Execute []string
	// Writable are the only files and directories, with everything below them, that can be written, created, renamed
	// or removed, besides [AlwaysWritable].
	Writable []string
	// Readable are the only files and directories, with everything below them, that can be read, listed and executed,
	// besides [AlwaysReadable] and Writable.
	Readable []string
}

// Check returns an error if Landlock of version abi, 0 for none, cannot hold the rules: it is too old, or one of trees,
// the writable mount points of the container, lies below a directory that is always writable, and not in Writable.
// Landlock's right to write to a directory holds for every mount below it, so the list would not hold for that tree. A
// tree below a directory that is always readable, such as /etc itself, is readable as a whole.
func (r Rules) Check(abi int, trees []string) error {
	need := 0
	if r.Execute != nil {
		need = ExecuteABI
	}
	if r.Readable != nil {
		need = max(need, ReadABI)
	}
	if r.Writable != nil {
		need = WriteABI
	}
	if abi < need {
		return &errs.Error{
			Op: "allowing paths", Kind: errs.ErrNotSupported,
			Err:   fmt.Errorf("%w: the lists of programs, readable and writable paths require version %d, and this kernel has %d", ErrOld, need, abi),
			Hints: []string{"snapfs doctor"},
		}
	}
	for _, tree := range trees {
		in := func(dir string) bool { return tree == dir || strings.HasPrefix(tree, dir+"/") }
		above := slices.IndexFunc(AlwaysWritable[:], in)
		if r.Writable == nil || above < 0 || slices.ContainsFunc(r.Writable, in) {
			continue
		}
		return &errs.Error{
			Op: "allowing paths", Path: tree, Kind: errs.ErrNotSupported,
			Err:   fmt.Errorf("the list of writable paths cannot hold below %s, which every container may write", AlwaysWritable[above]),
			Hints: []string{"move the directory out of " + AlwaysWritable[above] + ", or use read-only in place of writable"},
		}
	}
	return nil
}
