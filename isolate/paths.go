//go:build linux

package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// linkers are the paths of dynamic linkers, which the kernel executes as the interpreter of most programs, so
// a container that may execute only some programs may execute these too.
var linkers = [...]string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

const (
	executeABI = 2 // the version of Landlock that Spec.Execute needs: an older one always denies renames between directories
	writeABI   = 3 // the version of Landlock that Spec.Writable needs: an older one has no right to truncate

	// writeFile are the Landlock rights to write to a file, and writeBeneath those to change files of a
	// directory.
	writeFile    = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	writeBeneath = writeFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
)

// checkPaths returns an error if the kernel's Landlock cannot limit which programs the container may execute or
// which paths it may write (Spec.Execute, Spec.Writable): it is too old, or a tree lies below one of the
// directories that are always writable. Even with [Spec.BestEffort] a container does not start without these
// limits.
func (b *builder) checkPaths() error {
	need := 0
	if b.spec.Execute != nil {
		need = executeABI
	}
	if b.spec.Writable != nil {
		need = writeABI
	}
	if b.host.landlock >= need {
		return b.checkTrees()
	}
	return &errs.Error{
		Op: "allowing paths", Kind: errs.ErrNotSupported,
		Err:   fmt.Errorf("%w: the lists of programs and writable paths require version %d, and this kernel has %d", ErrOldLandlock, need, b.host.landlock),
		Hints: []string{"snapfs doctor"},
	}
}

// checkTrees returns an error if a tree lies below a directory that the container may always write, such as /tmp,
// and not in Spec.Writable, the list of writable paths. Landlock's right to write to a directory holds for every
// mount below it, so the list would not hold for that tree.
func (b *builder) checkTrees() error {
	if b.spec.Writable == nil {
		return nil
	}
	for _, m := range b.spec.Mounts {
		in := func(dir string) bool { return m.Target == dir || strings.HasPrefix(m.Target, dir+"/") }
		above := slices.IndexFunc(AlwaysWritable[:], in)
		if above < 0 || m.ReadOnly || slices.ContainsFunc(b.spec.Writable, in) {
			continue
		}
		return &errs.Error{
			Op: "allowing paths", Path: m.Target, Kind: errs.ErrNotSupported,
			Err:   fmt.Errorf("the list of writable paths cannot hold below %s, which every container may write", AlwaysWritable[above]),
			Hints: []string{"move the directory out of " + AlwaysWritable[above], "or use read-only in place of writable"},
		}
	}
	return nil
}

// allowPaths adds the system calls that let the container execute only the programs of Spec.Execute, and
// write only to the paths of Spec.Writable, by Landlock. The ruleset also handles renames between directories
// and allows them everywhere, because otherwise every rename between directories would fail.
func (b *builder) allowPaths() {
	if b.spec.Execute == nil && b.spec.Writable == nil {
		return
	}
	b.Stage = "allowing paths"
	const execute, refer uint64 = unix.LANDLOCK_ACCESS_FS_EXECUTE, unix.LANDLOCK_ACCESS_FS_REFER
	handled := refer
	if b.spec.Execute != nil {
		handled |= execute
	}
	if b.spec.Writable != nil {
		handled |= writeBeneath
	}
	rules := b.Do(unix.SYS_LANDLOCK_CREATE_RULESET, b.Words(handled), launch.Num(8), launch.Num(0)).Result()
	b.allow(rules, "/", refer, refer)
	if b.spec.Execute != nil {
		for _, p := range append(onHost(), b.spec.Execute...) {
			b.allow(rules, p, execute, execute)
		}
	}
	if b.spec.Writable != nil {
		for _, p := range AlwaysWritable {
			b.allow(rules, p, writeBeneath, writeFile)
		}
		for _, p := range b.spec.Writable {
			b.allow(rules, p, writeBeneath, writeFile)
		}
	}
	b.Do(unix.SYS_LANDLOCK_RESTRICT_SELF, b.Of(rules), launch.Num(0))
	b.Do(unix.SYS_CLOSE, b.Of(rules))
}

// onHost returns the paths of the dynamic linkers after the symbolic links of the host, whose system a container shows,
// since allow follows none. For a linker that the host lacks it is the path where the container may install it. It looks
// at each directory once.
func onHost() (paths []string) {
	dirs := map[string]string{}
	for _, linker := range linkers {
		dir, known := dirs[filepath.Dir(linker)]
		if !known {
			dir, _ = filepath.EvalSymlinks(filepath.Dir(linker))
			dirs[filepath.Dir(linker)] = dir
		}
		path := linker
		if dir != "" {
			path = filepath.Join(dir, filepath.Base(linker))
		}
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
		}
		paths = append(paths, path)
	}
	return paths
}

// allow adds the system calls that add a rule for path to the Landlock ruleset rules, if the path exists: the
// rights directory for a directory with everything below it, or file for a file. A path with a symbolic link gets no
// rule, because a command of an earlier container may have made the link.
func (b *builder) allow(rules launch.Cell, path string, directory, file uint64) {
	name, how := b.Str(path), b.Words(unix.O_PATH|unix.O_CLOEXEC, 0, unix.RESOLVE_NO_SYMLINKS)
	open := func() launch.Step {
		return b.Do(unix.SYS_OPENAT2, launch.Num(unix.AT_FDCWD), name, how, launch.Num(unix.SizeofOpenHow)).Path(path)
	}
	once := open().Tolerate(unix.ENOENT, unix.EACCES) // a step can tolerate only two errors
	fd := once.Result()
	again := open().Tolerate(unix.ELOOP, unix.ENOTDIR).To(fd)
	there := b.Do(launch.Load, b.Of(fd))
	once.Next(there).Zero(there).Expect(again)
	_, first := b.rule(rules, path, fd, directory)
	closing := b.Do(unix.SYS_CLOSE, b.Of(fd))
	done := b.Jump()
	there.Expect(done)
	if directory == file {
		return
	}
	b.Last = 0
	retry, second := b.rule(rules, path, fd, file) // the kernel refuses rights of directories for a file (EINVAL)
	second.Next(closing).Zero(closing)
	first.Expect(retry)
	b.Last = done.At
}

// rule adds the system calls that give the Landlock ruleset rules a rule with the rights access for path,
// which is open as fd. It returns the first and the last of them.
func (b *builder) rule(rules launch.Cell, path string, fd launch.Cell, access uint64) (first, last launch.Step) {
	at := b.Take(16) // struct landlock_path_beneath_attr, packed: the rights, then the descriptor
	b.Put64(at, access)
	first = b.Do(launch.Load, b.Of(fd)).To(launch.Cell(at + 8))
	return first, b.Do(unix.SYS_LANDLOCK_ADD_RULE, b.Of(rules), launch.Num(unix.LANDLOCK_RULE_PATH_BENEATH), launch.Num(b.Addr(at)), launch.Num(0)).Path(path)
}
