package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func probeBtrfs(context.Context) Result {
	list, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return unknown(err.Error())
	}
	if bytes.Contains(list, []byte("\tbtrfs\n")) {
		return yes("")
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return unknown(err.Error())
	}
	modules := "/lib/modules/" + unix.ByteSliceToString(uts.Release[:])
	dep, err := os.ReadFile(modules + "/modules.dep")
	if err == nil && bytes.Contains(dep, []byte("/btrfs.ko")) {
		return unknown("the module is there, but not loaded", asRoot("modprobe btrfs"))
	}
	return no("this kernel is built without it")
}

func probeMkfs(context.Context) Result {
	path := findProgram("mkfs.btrfs")
	if path == "" {
		return no("not installed", asRoot("apt-get install btrfs-progs"))
	}
	return yes(path)
}

// findProgram returns the path of a program, such as mkfs.btrfs, also from the system directories that an
// ordinary user's PATH lacks; "" if it is not installed.
func findProgram(name string) string {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin", "/usr/local/sbin")
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func (p place) probeLoop(ctx context.Context) Result {
	return p.within(ctx, func(dir string) Result {
		image, err := os.Create(filepath.Join(dir, "image"))
		if err != nil {
			return unknown(err.Error())
		}
		defer image.Close()
		if err := image.Truncate(1 << 20); err != nil {
			return unknown(err.Error())
		}
		loop, err := loopdev.Attach(image)
		switch {
		case err == nil:
			loop.Close() // which detaches it
			return yes("")
		case errors.Is(err, fs.ErrNotExist):
			return no("there is no /dev/loop-control", asRoot("modprobe loop"))
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
			return no(needsRoot)
		}
		return no(err.Error())
	})
}

func (p place) probeReflink(ctx context.Context) Result {
	return p.within(ctx, func(dir string) Result {
		src, err1 := os.Create(filepath.Join(dir, "a"))
		dst, err2 := os.Create(filepath.Join(dir, "b"))
		if err := errors.Join(err1, err2); err != nil {
			return unknown(err.Error())
		}
		defer src.Close()
		defer dst.Close()
		fs, err := mount.FilesystemOf(dir)
		if err != nil {
			return unknown(err.Error())
		}
		if _, err := src.Write(make([]byte, 4096)); err != nil {
			return unknown(err.Error())
		}
		if err := vfs.CloneFile(dst, src); err != nil {
			return no("not on " + fs.Type)
		}
		return yes("on " + fs.Type)
	})
}

func (p place) probeXattrs(ctx context.Context) Result {
	return p.within(ctx, func(dir string) Result {
		fs, err := mount.FilesystemOf(dir)
		if err != nil {
			return unknown(err.Error())
		}
		if err := vfs.SetXattr(unix.AT_FDCWD, dir, "user.snapfs", []byte("1"), 0); err != nil {
			return no("not on " + fs.Type + ": " + err.Error())
		}
		return yes("on " + fs.Type)
	})
}

func probeFUSE(context.Context) Result {
	return probeDevice("/dev/fuse", "fuse")
}

func probeSimpleQuota(ctx context.Context) Result {
	if r := probeBtrfs(ctx); r.Answer != Yes {
		return r
	}
	if !btrfs.SimpleQuota() {
		return no("this kernel's btrfs has none")
	}
	return yes("")
}

// probePassthrough finds out whether the kernel has FUSE passthrough: it mounts a detached FUSE filesystem
// and looks for FUSE_PASSTHROUGH (linux/fuse.h) among the features that FUSE_INIT offers.
func probePassthrough(context.Context) Result {
	f, mount, err := mount.NewFUSE(mount.FUSEOptions{Subtype: "snapfs-probe", MaxRead: 1 << 16}, 0)
	if err != nil {
		return unknown(err.Error())
	}
	defer f.Close()
	defer mount.Close()
	const (
		header, flags, init = 40, 12, 26
		extended            = 1 << 30
		passthrough         = 1 << (37 - 32)
	)
	request := make([]byte, 1<<17)
	n, err := unix.Read(f.Dev, request)
	if err != nil || n < header+flags+4 || binary.NativeEndian.Uint32(request[4:]) != init {
		return unknown("what the kernel says first is not known")
	}
	said := request[header+flags : n]
	if binary.NativeEndian.Uint32(said)&extended == 0 || len(said) < 8 || binary.NativeEndian.Uint32(said[4:])&passthrough == 0 {
		return no("this kernel does not offer it")
	}
	return yes("")
}

func probeTun(context.Context) Result {
	return probeDevice("/dev/net/tun", "tun")
}

func probeDevice(path, module string) Result {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return yes("")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return no("there is no "+path, asRoot("modprobe "+module))
	case errors.Is(err, fs.ErrPermission):
		return no("this user may not open "+path, asRoot("chmod 666 "+path))
	}
	return unknown(err.Error())
}

func probeCgroup2(context.Context) Result {
	r := inCgroup(func(r hostinfo.CgroupRoot) bool { return r.Version == 2 }, "cgroup.kill", "cgroup.freeze")
	if r.Why == needsRoot && findProgram("systemd-run") != "" {
		r.Fix = []string{"systemd-run --user --scope --property=Delegate=yes $SHELL"}
	}
	return r
}

func probeCgroup1(context.Context) Result {
	var have []string
	var last Result
	for _, controller := range []string{"freezer", "memory", "pids"} {
		last = inCgroup(func(r hostinfo.CgroupRoot) bool { return slices.Contains(r.Controllers, controller) }, "cgroup.procs")
		if last.Answer == Yes {
			have = append(have, controller)
		}
	}
	if len(have) == 0 {
		return last
	}
	return yes(strings.Join(have, ", "))
}

// inCgroup finds out whether this process can make cgroups with certain files, such as "memory.max". It makes
// a cgroup below this process's own, in the first cgroup hierarchy for which fits returns true. The answer is
// Yes if each of files can be opened there for writing.
func inCgroup(fits func(hostinfo.CgroupRoot) bool, files ...string) Result {
	roots, err := hostinfo.CgroupRoots()
	if err != nil {
		return unknown(err.Error())
	}
	i := slices.IndexFunc(roots, fits)
	if i < 0 {
		return no("not mounted")
	}
	group := filepath.Join(roots[i].Path, ownCgroup(roots[i]), "snapfs-probe-"+strconv.Itoa(os.Getpid()))
	err = os.Mkdir(group, 0o755)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return no(needsRoot)
	}
	if err != nil {
		return no(err.Error())
	}
	defer func() { _ = os.Remove(group) }() // empty, so that it can only work
	for _, file := range files {
		f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
		if err != nil {
			return no("groups have no " + file)
		}
		f.Close()
	}
	return yes("")
}

// ownCgroup returns the path of this process's cgroup, relative to the mount point of the hierarchy r, from
// /proc/self/cgroup.
func ownCgroup(r hostinfo.CgroupRoot) string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && f[1] == strings.Join(r.Controllers, ",") {
			return f[2]
		}
	}
	return "/"
}
