//go:build linux

package isolate

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// hostFacts is what a builder knows about the machine and the caller. The supervisor collects it, because pid 1
// can only execute prepared steps.
type hostFacts struct {
	uid, gid int
	landlock int // ABI, 0 without
	anchor   string
	run      []entry
	resolv   string // the target of /etc/resolv.conf if it is in /run, or ""
	cgroup2  bool   // /sys/fs/cgroup is the unified hierarchy
	cgroups  []int  // descriptors of the v1 cgroups to enter
	birth    int    // descriptor of the v2 cgroup to create pid 1 in, or -1
	freeFD   int    // pid 1 uses no descriptor from here on
}

// entry is a directory, symbolic link or file to create in a fresh tmpfs.
type entry struct {
	name     string
	link     string // the target of a symbolic link
	file     bool
	mode     uint32
	uid, gid uint32
}

// callerFacts collects what the fork needs.
func callerFacts(spec *Spec) hostFacts {
	h := hostFacts{uid: os.Geteuid(), gid: os.Getegid(), freeFD: 1000, birth: -1}
	var st unix.Statfs_t
	for _, c := range spec.Cgroups {
		if unix.Fstatfs(int(c.Fd()), &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			h.birth = int(c.Fd())
		} else {
			h.cgroups = append(h.cgroups, int(c.Fd()))
		}
	}
	return h
}

// probeHost collects the remaining facts.
func (b *builder) probeHost() (err error) {
	h := &b.host
	if h.anchor, err = anchor(); err != nil {
		return err
	}
	h.landlock = landlockABI()
	h.run = append(firstLevel("/run"), listRun("user")...)
	if b.spec.Network == NetworkHost {
		h.resolv = resolvConf()
	}
	var st unix.Statfs_t
	h.cgroup2 = unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
	return nil
}

// anchor returns a directory to attach the new root to, before pivot_root.
func anchor() (string, error) {
	for _, dir := range []string{"/tmp", "/mnt", "/run", "/dev"} {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return dir, nil
		}
	}
	return "", &errs.Error{Op: "changing the root", Path: "/tmp", Kind: errs.ErrNotFound}
}

// firstLevel lists the directories, symbolic links and files in dir. It omits unreadable entries: the container
// is then emptier, not more open.
func firstLevel(dir string) []entry {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var list []entry
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		e := entry{name: name, mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			list = append(list, e)
		case unix.S_IFREG:
			e.file = true
			list = append(list, e)
		case unix.S_IFLNK:
			if e.link, err = os.Readlink(filepath.Join(dir, name)); err == nil {
				list = append(list, e)
			}
		}
	}
	return list
}

// listRun lists a directory of /run, with paths relative to /run.
func listRun(dir string) []entry {
	list := firstLevel("/run/" + dir)
	for i := range list {
		list[i].name = dir + "/" + list[i].name
	}
	return list
}

// resolvConf returns the target of /etc/resolv.conf if it is in /run, or "".
func resolvConf() string {
	p, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil || !strings.HasPrefix(p, "/run/") {
		return ""
	}
	return p
}

// landlockABI returns the kernel's Landlock ABI (landlock(7)), or 0.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// commandLine returns the address and size of this program's arguments, which the kernel stores consecutively:
// the strings of os.Args still point there, unless the program changed them.
func commandLine() (start uintptr, size int) {
	for i, a := range os.Args {
		at := uintptr(unsafe.Pointer(unsafe.StringData(a)))
		if i == 0 {
			start = at
		}
		if at != start+uintptr(size) {
			break
		}
		size += len(a) + 1
	}
	return start, size
}
