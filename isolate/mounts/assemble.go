//go:build linux

package mounts

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// Assemble adds the system calls by which the container's pid 1 assembles the file tree from the mounts that
// were made before.
func (pl *Planner) Assemble() {
	pl.makeTrees()
	pl.makeShared()
	pl.pivot()
	pl.Stage = "attaching the trees"
	pinned := pins(pl.Spec)
	pl.pin(pinned[0])
	for i, m := range pl.Spec.Mounts[1:] {
		if !underPrivate(m.Target) {
			pl.attachTree(i + 1)
			pl.pin(pinned[i+1])
		}
	}
	pl.attachFiles(false)
	pl.attachPrivate(&pl.private)
	pl.Stage = "attaching the trees"
	for i, m := range pl.Spec.Mounts[1:] {
		if underPrivate(m.Target) {
			pl.makeDirs(m.Target)
			pl.attachTree(i + 1)
			pl.pin(pinned[i+1])
		}
	}
	pl.attachFiles(true)
	pl.attachServers()
	pl.readOnly()
	pl.noExec()
	pl.hide()
	pl.guard()
}

// attachFiles adds the system calls by which pid 1 bind-mounts single files of the host into trees that are
// otherwise an empty copy of a host directory ([Mount.Skeleton]). With private it takes the files in a
// directory of which every container has its own, such as /run, else all others.
func (pl *Planner) attachFiles(private bool) {
	for _, f := range pl.files {
		if underPrivate(f.to) == private {
			there := pl.Do(launch.Load, pl.Of(f.mount))
			// ENOENT: another program, such as useradd with its lock files, has removed the host's file.
			pl.attach(pl.Of(f.mount), f.to, false).Tolerate(unix.EBUSY, unix.ENOENT)
			there.Expect(pl.Jump())
		}
	}
}

// underPrivate reports whether target is below a directory of which every container has its
// own, such as /run. The mount at target must be attached after that directory, which would
// cover it otherwise.
func underPrivate(target string) bool {
	for _, dir := range [...]string{"/proc/", "/sys/", "/dev/", "/run/", "/tmp/"} {
		if strings.HasPrefix(target, dir) {
			return true
		}
	}
	return false
}

// makeDirs adds the system calls by which pid 1 creates the directory target and its parents in one of the
// container's own directories.
func (pl *Planner) makeDirs(target string) {
	for i := 1; i < len(target); i++ {
		if target[i] == '/' {
			pl.Do(unix.SYS_MKDIRAT, launch.Num(unix.AT_FDCWD), pl.Str(target[:i]), launch.Num(0o755)).Path(target[:i]).Tolerate(unix.EEXIST)
		}
	}
	pl.Do(unix.SYS_MKDIRAT, launch.Num(unix.AT_FDCWD), pl.Str(target), launch.Num(0o755)).Path(target).Tolerate(unix.EEXIST)
}
