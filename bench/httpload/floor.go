//go:build linux

package httpload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// floor returns how long the kernel needs for a minimal sandbox: a container with an overlay of the host's root, with
// namespaces, /proc, /sys, /dev, /run and /tmp of its own, which runs true in the directory tree and ends. floor makes
// it by a list of system calls alone: it has no catalogue, no policy, no hidden files, and no other process. It needs
// root.
func floor(ctx context.Context, tree string) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	began := time.Now()
	im, err := launch.NewImage()
	if err != nil {
		return 0, err
	}
	defer im.Free()
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET
	pid, pidfd, thread, err := im.StartPID1(floorSteps(im, tree), namespaces, -1)
	if err != nil {
		return 0, err
	}
	defer launch.ReleaseThread(thread)
	defer unix.Close(pidfd)
	var st unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &st, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	took := time.Since(began)
	if where, errno := im.Failure(); errno != 0 {
		return took, fmt.Errorf("%s: %w", where.Stage, errno)
	}
	if err == nil && !(st.Exited() && st.ExitStatus() == 0) {
		err = fmt.Errorf("true ended with wait status %#x", uint32(st))
	}
	return took, err
}

// floorSteps adds the system calls of [floor] to an image and returns the first.
func floorSteps(im *launch.Image, tree string) launch.Step {
	im.Stage = "ending"
	exit := im.Do(unix.SYS_EXIT_GROUP, launch.Num(1))
	exit.Fail(exit)
	im.Last, im.OnErr = 0, exit.At
	none := im.Str("none")
	mount := func(kind, at, options string, flags int) launch.Step {
		im.Stage = "mounting " + at
		return im.Do(unix.SYS_MOUNT, none, im.Str(at), im.Str(kind), launch.Num(flags), im.Str(options))
	}
	first := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE)
	const layers = "/tmp"
	mount("tmpfs", layers, "mode=755", 0)
	for _, name := range []string{"upper", "work", "root"} {
		im.Do(unix.SYS_MKDIRAT, launch.Num(unix.AT_FDCWD), im.Str(filepath.Join(layers, name)), launch.Num(0o755))
	}
	root := layers + "/root"
	mount("overlay", root, "volatile,lowerdir=/,upperdir="+layers+"/upper,workdir="+layers+"/work", 0)
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	mount("proc", root+"/proc", "", quiet)
	mount("sysfs", root+"/sys", "", quiet|unix.MS_RDONLY)
	mount("tmpfs", root+"/dev", "mode=755", unix.MS_NOSUID)
	for _, name := range []string{"pts", "mqueue"} {
		im.Do(unix.SYS_MKDIRAT, launch.Num(unix.AT_FDCWD), im.Str(root+"/dev/"+name), launch.Num(0o755))
	}
	mount("devpts", root+"/dev/pts", "newinstance,ptmxmode=666", unix.MS_NOSUID|unix.MS_NOEXEC)
	mount("mqueue", root+"/dev/mqueue", "", quiet)
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		path := root + "/dev/" + name
		im.Do(unix.SYS_MKNODAT, launch.Num(unix.AT_FDCWD), im.Str(path), launch.Num(unix.S_IFREG|0o666), launch.Num(0))
		im.Do(unix.SYS_MOUNT, im.Str("/dev/"+name), im.Str(path), launch.Num(0), launch.Num(unix.MS_BIND), launch.Num(0))
	}
	mount("tmpfs", root+"/run", "mode=755", unix.MS_NOSUID|unix.MS_NODEV)
	mount("tmpfs", root+"/tmp", "mode=1777", unix.MS_NOSUID|unix.MS_NODEV)
	im.Stage = "changing the root"
	im.Do(unix.SYS_CHDIR, im.Str(root))
	im.Do(unix.SYS_PIVOT_ROOT, im.Str("."), im.Str("."))
	im.Do(unix.SYS_UMOUNT2, im.Str("."), launch.Num(unix.MNT_DETACH))
	im.Do(unix.SYS_CHDIR, im.Str("/"))
	im.Do(unix.SYS_CHDIR, im.Str(tree)).IgnoreErrors() // tree is missing if another mount of the host has it
	im.Stage = "starting true"
	im.Do(unix.SYS_EXECVE, im.Str("/bin/true"), im.Strs([]string{"true"}), im.Strs([]string{"PATH=" + os.Getenv("PATH")}))
	return first
}
