//go:build linux

package mounts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// A surroundings holds the facts about the host's file tree on which the system calls of a container's pid 1
// depend. The supervisor collects them, because pid 1 can only execute a prepared list.
type surroundings struct {
	anchor  string
	run     []entry
	resolv  string // the target of /etc/resolv.conf if it is in /run, or ""
	cgroup2 bool   // /sys/fs/cgroup is the unified hierarchy
	freeFD  int    // pid 1 uses no descriptor from here on
	memory  int64  // of the host in bytes, without swap
}

// An entry is a directory, symbolic link or file that pid 1 creates in a fresh tmpfs of the container, such
// as /run, as the host has it.
type entry struct {
	name     string
	link     string // the target of a symbolic link
	file     bool
	mode     uint32
	uid, gid uint32
}

// Notes is the name of the directory in the container's /run that belongs to the supervisor. A container does not get the
// host's entry of that name: the supervisor could not write to a directory with another owner.
const Notes = "snapfs"

// LookAround collects the facts about the host's file tree that the planner needs. It must be called before
// the planner adds system calls.
func (pl *Planner) LookAround() (err error) {
	a := &pl.around
	if a.anchor, err = anchor(); err != nil {
		return err
	}
	a.run = append(slices.DeleteFunc(firstLevel("/run"), func(e entry) bool { return e.name == Notes }), listRun("user")...)
	if pl.Spec.HostNetwork {
		a.resolv = resolvConf()
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		a.memory = int64(info.Totalram) * int64(info.Unit)
	}
	var st unix.Statfs_t
	a.cgroup2 = unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
	return nil
}

// anchor returns a directory of the host at which pid 1 can attach the container's new root before
// pivot_root(2) makes that the root.
func anchor() (string, error) {
	for _, dir := range []string{"/tmp", "/mnt", "/run", "/dev"} {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return dir, nil
		}
	}
	return "", &errs.Error{Op: "changing the root", Path: "/tmp", Kind: errs.ErrNotFound}
}

// firstLevel lists the directories, symbolic links and files in the host directory dir, to be recreated in a
// container. It omits unreadable entries: the container is then emptier, not more open. An ordinary user owns
// the copies of directories, so their mode grants the owner what the user may do with the originals.
func firstLevel(dir string) []entry {
	d, err := vfs.OpenAt(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	own := uint32(os.Geteuid())
	var list []entry
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		e := entry{name: name, mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			if own != 0 && st.Uid != own {
				e.mode = e.mode&^0o700 | allowed(int(d.Fd()), name)<<6
			}
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

// allowed returns which access this process has to the entry name of the directory dir: the bits of read,
// write and search permission.
func allowed(dir int, name string) (bits uint32) {
	for _, bit := range []uint32{unix.R_OK, unix.W_OK, unix.X_OK} {
		if unix.Faccessat(dir, name, bit, unix.AT_EACCESS) == nil {
			bits |= bit
		}
	}
	return bits
}

// listRun lists the directory dir of the host's /run, with paths relative to /run, so that the container's
// own /run gets the same directories and links.
func listRun(dir string) []entry {
	list := firstLevel("/run/" + dir)
	for i := range list {
		list[i].name = dir + "/" + list[i].name
	}
	return list
}

// resolvConf returns the target of the host's /etc/resolv.conf if that is a symbolic link into /run, which
// the container's own /run must then have too; else "".
func resolvConf() string {
	p, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil || !strings.HasPrefix(p, "/run/") {
		return ""
	}
	return p
}
