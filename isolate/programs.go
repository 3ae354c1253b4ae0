//go:build linux

package isolate

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// linkers are the dynamic linkers, which the kernel executes as the interpreter of most programs.
var linkers = [...]string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

// programsABI is the first Landlock ABI with the right to rename between directories, which an older one always
// denies.
const programsABI = 2

// checkPrograms returns an error if the kernel cannot enforce Spec.Execute, which not even a best effort does without.
func (b *builder) checkPrograms() error {
	if b.spec.Execute == nil || b.host.landlock >= programsABI {
		return nil
	}
	return &errs.Error{
		Op: "allowing programs", Kind: errs.ErrNotSupported,
		Err:   fmt.Errorf("it requires Landlock ABI %d (Linux 5.19); this kernel has %d", programsABI, b.host.landlock),
		Hints: []string{"snapfs doctor"},
	}
}

// allowPrograms adds the steps that let the container execute only the programs of Spec.Execute, by Landlock. The
// ruleset also handles renames between directories and allows them everywhere, because otherwise every rename
// between directories would fail.
func (b *builder) allowPrograms() {
	if b.spec.Execute == nil {
		return
	}
	b.Stage = "allowing programs"
	const execute, refer = unix.LANDLOCK_ACCESS_FS_EXECUTE, unix.LANDLOCK_ACCESS_FS_REFER
	create := b.Do(unix.SYS_LANDLOCK_CREATE_RULESET, b.Words(execute|refer), launch.Num(8), launch.Num(0))
	rules := create.Result()
	b.allowBeneath(rules, "/", refer)
	for _, p := range linkers {
		b.allowBeneath(rules, p, execute)
	}
	for _, p := range b.spec.Execute {
		b.allowBeneath(rules, p, execute)
	}
	b.Do(unix.SYS_LANDLOCK_RESTRICT_SELF, b.Of(rules), launch.Num(0))
	b.Do(unix.SYS_CLOSE, b.Of(rules))
}

// allowBeneath adds the steps that give the ruleset a rule for a file, or a directory with everything below it, if
// the path exists.
func (b *builder) allowBeneath(rules launch.Cell, path string, access uint64) {
	open := b.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), b.Str(path), launch.Num(unix.O_PATH|unix.O_CLOEXEC)).Path(path).Tolerate(unix.ENOENT, unix.EACCES)
	fd := open.Result()
	there := b.Do(launch.Load, b.Of(fd))
	at := b.Take(16) // struct landlock_path_beneath_attr, packed: the rights, then the descriptor
	b.Put64(at, access)
	b.Do(launch.Load, b.Of(fd)).To(launch.Cell(at + 8))
	b.Do(unix.SYS_LANDLOCK_ADD_RULE, b.Of(rules), launch.Num(unix.LANDLOCK_RULE_PATH_BENEATH), launch.Num(b.Addr(at)), launch.Num(0)).Path(path)
	b.Do(unix.SYS_CLOSE, b.Of(fd))
	there.Expect(b.Jump())
}
