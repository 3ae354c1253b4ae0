package landlock

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// linkers are the paths of dynamic linkers, which the kernel executes as the interpreter of most programs, so
// a container that may execute only some programs may execute these too.
var linkers = [...]string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

// Landlock rights: writeFile are those to write to a file, and writeBeneath those to change files of a directory;
// readBeneath are those to read files and to list a directory.
const (
	writeFile    uint64 = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	writeBeneath        = writeFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	readFile    uint64 = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readBeneath        = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
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

// Restrict adds to the image im the system calls by which a process, and every process that descends from it, is
// limited to the rules; none for rules without a list.
func (r Rules) Restrict(im *launch.Image) {
	if r.Execute == nil && r.Writable == nil && r.Readable == nil {
		return
	}
	rules := r.Add(im)
	im.Do(unix.SYS_LANDLOCK_RESTRICT_SELF, im.Of(rules), launch.Num(0))
	im.Do(unix.SYS_CLOSE, im.Of(rules))
}

// Add adds to the image im the system calls that create a ruleset with these rules, and returns the cell with its
// descriptor. With r.Execute, programs are cells with descriptors of further programs that can be executed; one that
// holds no open descriptor is skipped. The ruleset also handles renames between directories and allows them everywhere,
// because otherwise every rename between directories would fail.
func (r Rules) Add(im *launch.Image, programs ...launch.Cell) launch.Cell {
	im.Stage = "allowing paths"
	const execute, refer uint64 = unix.LANDLOCK_ACCESS_FS_EXECUTE, unix.LANDLOCK_ACCESS_FS_REFER
	handled := refer
	if r.Execute != nil {
		handled |= execute
	}
	write, read := rights{}, rights{}
	if r.Writable != nil {
		write = rights{directory: writeBeneath, file: writeFile}
	}
	if r.Readable != nil {
		read = rights{directory: readBeneath, file: readFile}
	}
	handled |= write.directory | read.directory
	b := builder{Image: im, rules: im.Do(unix.SYS_LANDLOCK_CREATE_RULESET, im.Words(handled), launch.Num(8), launch.Num(0)).Result()}
	b.allow("/", rights{refer, refer})
	if r.Execute != nil {
		for _, p := range append(onHost(), r.Execute...) {
			b.allow(p, rights{execute, execute})
		}
		for _, fd := range programs {
			b.rule(fd, execute|read.file).Tolerate(unix.EBADF)
		}
	}
	if r.Readable != nil {
		for _, p := range slices.Concat(AlwaysReadable[:], r.Readable) {
			b.allow(p, read)
		}
	}
	if r.Writable != nil {
		both := rights{write.directory | read.directory, write.file | read.file}
		for _, p := range slices.Concat(AlwaysWritable[:], r.Writable) {
			b.allow(p, both)
		}
	}
	return b.rules
}

// A builder adds the system calls that make a Landlock ruleset to an image. rules has the ruleset's descriptor, and how
// is the argument of openat2(2) for all rules.
type builder struct {
	*launch.Image
	rules launch.Cell
	how   launch.Arg
}

// rights are those that a list gives to a directory with everything below it, and to a file.
type rights struct{ directory, file uint64 }

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

// allow adds the system calls that add a rule with these rights for path to the ruleset, if the path exists. A path
// with a symbolic link gets no rule, because a command of an earlier container may have made the link.
//
// A package may need a rule for each of many programs, so a rule takes three steps: open the path, add the rule, close
// the descriptor. If the path could not be opened, the kernel refuses the other two with EBADF, which they tolerate.
func (b *builder) allow(path string, rights rights) {
	name := b.Str(path)
	if b.how.V == 0 {
		b.how = b.Words(unix.O_PATH|unix.O_CLOEXEC, 0, unix.RESOLVE_NO_SYMLINKS)
	}
	at, fd := b.attr(rights.directory)
	open := func() launch.Step {
		return b.Do(unix.SYS_OPENAT2, launch.Num(unix.AT_FDCWD), name, b.how, launch.Num(unix.SizeofOpenHow)).Path(path).To(fd)
	}
	first := open().Tolerate(unix.ENOENT, unix.EACCES) // a step can tolerate only two errors
	add := b.add(path, at).Tolerate(unix.EBADF)
	closing := b.Do(unix.SYS_CLOSE, b.Of(fd)).Tolerate(unix.EBADF)
	b.Last = 0
	again := open().Tolerate(unix.ELOOP, unix.ENOTDIR)
	again.Next(add).Zero(add)
	first.Expect(again)
	if rights.directory != rights.file { // the kernel refuses rights of directories for a file (EINVAL)
		at, second := b.attr(rights.file)
		retry := b.Do(launch.Load, b.Of(fd)).To(second)
		b.add(path, at).Next(closing).Zero(closing)
		add.Expect(retry)
	}
	b.Last = closing.At
}

// rule adds the system calls that add a rule to the ruleset, with the rights access for the file open as fd. It
// returns the last of them.
func (b *builder) rule(fd launch.Cell, access uint64) launch.Step {
	at, own := b.attr(access)
	b.Do(launch.Load, b.Of(fd)).To(own)
	return b.add("", at)
}

// attr reserves a packed struct landlock_path_beneath_attr with the rights access. It returns its offset in the image,
// and the cell for its descriptor.
func (b *builder) attr(access uint64) (at int, fd launch.Cell) {
	at = b.Take(16)
	b.Put64(at, access)
	return at, launch.Cell(at + 8)
}

// add adds the system call that adds the rule at the offset at to the ruleset. path is for errors.
func (b *builder) add(path string, at int) launch.Step {
	return b.Do(unix.SYS_LANDLOCK_ADD_RULE, b.Of(b.rules), launch.Num(unix.LANDLOCK_RULE_PATH_BENEATH), launch.Num(b.Addr(at)), launch.Num(0)).Path(path)
}
