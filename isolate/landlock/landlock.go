//go:build linux

// Package landlock adds to an image of system calls those that create a Landlock ruleset (landlock(7)): which programs
// can be executed, and which paths can be written. A process that enters a ruleset cannot leave it, and no process
// outside of it that is in another one can trace it.
package landlock

import (
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// ABI returns the version of the kernel's Landlock (landlock(7)), by which a container's access to
// files and sockets is restricted; 0 if the kernel has none.
func ABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// linkers are the paths of dynamic linkers, which the kernel executes as the interpreter of most programs, so
// a container that may execute only some programs may execute these too.
var linkers = [...]string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

const (
	// writeFile are the rights to write to a file, and writeBeneath those to change files of a directory.
	writeFile    = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	writeBeneath = writeFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
)

// Rules are what the processes in a ruleset may do.
type Rules struct {
	// Execute, if it is not nil, are the paths of the only programs that can be executed, besides dynamic linkers: files,
	// or directories with everything below them.
	Execute []string
	// Programs are cells with descriptors of further such programs. One that holds no open descriptor is skipped.
	Programs []launch.Cell
	// Writable, if it is not nil, are the paths of the only files and directories, with everything below them, that can
	// be written, besides AlwaysWritable.
	Writable, AlwaysWritable []string
}

// A builder adds system calls to an image.
type builder struct{ *launch.Image }

// Add adds the system calls that create a ruleset with these rules to the image im. It returns the cell with the
// ruleset's descriptor. Of the lists, paths that do not exist are skipped, and paths with a symbolic link. The ruleset
// also handles renames between directories and allows them everywhere, because otherwise every such rename would fail.
func (r Rules) Add(im *launch.Image) launch.Cell {
	b := builder{im}
	const execute, refer uint64 = unix.LANDLOCK_ACCESS_FS_EXECUTE, unix.LANDLOCK_ACCESS_FS_REFER
	handled := refer
	if r.Execute != nil {
		handled |= execute
	}
	if r.Writable != nil {
		handled |= writeBeneath
	}
	rules := b.Do(unix.SYS_LANDLOCK_CREATE_RULESET, b.Words(handled), launch.Num(8), launch.Num(0)).Result()
	b.allow(rules, "/", refer, refer)
	if r.Execute != nil {
		for _, p := range append(onHost(), r.Execute...) {
			b.allow(rules, p, execute, execute)
		}
		for _, fd := range r.Programs {
			_, last := b.rule(rules, "", fd, execute)
			last.Tolerate(unix.EBADF)
		}
	}
	if r.Writable != nil {
		for _, p := range r.AlwaysWritable {
			b.allow(rules, p, writeBeneath, writeFile)
		}
		for _, p := range r.Writable {
			b.allow(rules, p, writeBeneath, writeFile)
		}
	}
	return rules
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
func (b builder) allow(rules launch.Cell, path string, directory, file uint64) {
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
func (b builder) rule(rules launch.Cell, path string, fd launch.Cell, access uint64) (first, last launch.Step) {
	at := b.Take(16) // struct landlock_path_beneath_attr, packed: the rights, then the descriptor
	b.Put64(at, access)
	first = b.Do(launch.Load, b.Of(fd)).To(launch.Cell(at + 8))
	return first, b.Do(unix.SYS_LANDLOCK_ADD_RULE, b.Of(rules), launch.Num(unix.LANDLOCK_RULE_PATH_BENEATH), launch.Num(b.Addr(at)), launch.Num(0)).Path(path)
}
