package notifier

import "golang.org/x/sys/unix"

const (
	arch       = 0xc000003e // AUDIT_ARCH_X86_64
	newfstatat = unix.SYS_NEWFSTATAT
)

// older are the system calls of this architecture, beside those that all architectures have, that name a file
// without a directory descriptor, such as open(2). The filter of this package observes them too.
var older = []watched{
	{number: unix.SYS_OPEN, dir: none, path: 0, act: Open, flags: 1},
	{number: unix.SYS_CREAT, dir: none, path: 0, act: Open, flags: none},
	{number: unix.SYS_STAT, dir: none, path: 0, act: Look},
	{number: unix.SYS_LSTAT, dir: none, path: 0, act: Look},
	{number: unix.SYS_ACCESS, dir: none, path: 0, act: Look},
	{number: unix.SYS_READLINK, dir: none, path: 0, act: Look},
	{number: unix.SYS_MKDIR, dir: none, path: 0, act: Create},
	{number: unix.SYS_MKNOD, dir: none, path: 0, act: Create},
	{number: unix.SYS_SYMLINK, dir: none, path: 1, act: Create},
	{number: unix.SYS_LINK, dir: none, path: 1, act: Create},
	{number: unix.SYS_UNLINK, dir: none, path: 0, act: Remove},
	{number: unix.SYS_RMDIR, dir: none, path: 0, act: Remove},
	{number: unix.SYS_RENAME, dir: none, path: 0, act: Remove},
	{number: unix.SYS_RENAME, dir: none, path: 1, act: Replace},
	{number: unix.SYS_RENAME, dir: none, path: 0, act: Move, toDir: none, toPath: 1},
	{number: unix.SYS_LINK, dir: none, path: 0, act: Move, toDir: none, toPath: 1},
	{number: unix.SYS_CHMOD, dir: none, path: 0, act: SetAttr},
	{number: unix.SYS_CHOWN, dir: none, path: 0, act: SetAttr},
	{number: unix.SYS_UTIME, dir: none, path: 0, act: SetAttr},
	{number: unix.SYS_UTIMES, dir: none, path: 0, act: SetAttr},
}
