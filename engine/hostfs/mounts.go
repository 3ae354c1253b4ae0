package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
)

// An Environment is what of the real machine a sandbox sees, as paths. What is
// in none of its lists, or lies under a replaced directory, is not there.
type Environment struct {
	// Trees are copied, parents before what lies in them; "/" first, unless
	// it is a frame.
	Trees []string
	// Shown are shown as they are, read-only: what is read-only anyway, single
	// files that are mount points, and filesystems no overlay can be built on.
	Shown []string
	// Left are left out, as empty directories: filesystems of other machines
	// or of programs, which cannot be copied.
	Omitted []string
	// Frames are directories that only hold mount points: their entries are
	// trees and frames of their own, and they themselves are read-only in the
	// sandbox. The kernel makes no overlay in a user namespace of a directory
	// that has mounts beneath it: they are locked together
	// (mount_namespaces(7)).
	Frames []string

	mounts []mount.Point
}

// replaced are the directories that a sandbox has its own of.
var replaced = []string{"/proc", "/sys", "/dev", "/run", "/tmp"}

// ownViews: this system can show a process other files than the rest of the machine
// sees. Without that, a sandbox has a copy of its workspace, at another path, and
// nothing else is copied.
const ownViews = runtime.GOOS == "linux"

// Survey plans the environment of a sandbox from this process's mounts.
func Survey(workspace, state string, privileged bool) (*Environment, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, fmt.Errorf("reading this machine's mounts: %w", err)
	}
	all := visible(mounts)
	s := surveyor{mounts: slices.DeleteFunc(slices.Clone(all), automounted), state: state, work: workspace}
	if m := s.holding(workspace); m != nil && remote(m.Type) {
		return nil, &errs.Error{
			Op: "copying", Path: workspace, Kind: errs.ErrNotSupported,
			Err: fmt.Errorf("it lies on a network filesystem (%s at %s), whose files other machines change", m.Type, m.Path),
		}
	}
	if !ownViews {
		s.env.mounts, s.env.Trees = all, []string{workspace}
		return &s.env, nil
	}
	if privileged {
		err = s.whole()
	} else if err = s.split("/"); err == nil {
		s.reach("/var/tmp")
		if tmp := os.Getenv("TMPDIR"); filepath.IsAbs(tmp) {
			s.reach(filepath.Clean(tmp))
		}
		if home, herr := os.UserHomeDir(); herr == nil {
			s.reach(home)
		}
		s.reach(workspace)
	}
	if err == nil {
		err = s.workspace(workspace)
	}
	s.env.mounts = all
	sort.SliceStable(s.env.Trees, func(i, j int) bool { return s.env.Trees[i] < s.env.Trees[j] })
	return &s.env, err
}

type surveyor struct {
	mounts []mount.Point
	state  string
	work   string
	env    Environment
}

// whole makes a tree of each mount: a privileged overlay of "/" does not see
// what is mounted beneath it.
func (s *surveyor) whole() error {
	for _, m := range s.mounts {
		switch {
		case underReplaced(m.Path) || Within(m.Path, s.state):
		case m.Type == "overlay" && m.Path != "/" && !s.holds(m):
			// A container's. The kernel maps no ids through an overlay (EINVAL), so a
			// sandbox with ids of its own could not have it.
			s.env.Omitted = append(s.env.Omitted, m.Path)
		default:
			s.sort(m)
		}
	}
	return nil
}

// holds reports whether a mount has the workspace in it.
func (s *surveyor) holds(m mount.Point) bool { return Within(s.work, m.Path) }

// sort puts a mount where it belongs.
func (s *surveyor) sort(m mount.Point) {
	switch {
	case m.Path == "/":
		s.env.Trees = append(s.env.Trees, m.Path)
	case pseudo(m.Type):
	case remote(m.Type) || strings.HasPrefix(m.Type, "fuse"):
		s.env.Omitted = append(s.env.Omitted, m.Path)
	case readOnly(m) || caseless(m.Type) || !isDir(m.Path):
		s.env.Shown = append(s.env.Shown, m.Path)
	default:
		s.env.Trees = append(s.env.Trees, m.Path)
	}
}

// split makes a tree of dir where nothing is mounted beneath it, and a frame
// of it otherwise.
func (s *surveyor) split(dir string) error {
	if !s.mountsBeneath(dir) {
		if m := s.at(dir); m != nil {
			s.sort(*m)
		} else {
			s.env.Trees = append(s.env.Trees, dir)
		}
		return nil
	}
	if m := s.at(dir); m != nil && m.Path != "/" && (pseudo(m.Type) || remote(m.Type)) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil // nobody can enter it inside either; or it has just gone
		}
		return fmt.Errorf("reading %s: %w", dir, err)
	}
	s.env.Frames = append(s.env.Frames, dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case !e.IsDir() || underReplaced(path) || !enterable(path):
		case dir == "/" || mine(path) || Writable(path):
			if err := s.split(path); err != nil {
				return err
			}
		default: // not his to change; what of it is, reach finds
			s.env.Shown = append(s.env.Shown, path)
		}
	}
	return nil
}

func Writable(dir string) bool { return syscall.Access(dir, 2) == nil }

// enterable: what this user cannot enter is an empty directory in the sandbox.
func enterable(dir string) bool { return syscall.Access(dir, 1) == nil }

// reach makes sure that an ordinary user can write to dir in the sandbox. An
// overlay in a user namespace cannot copy up a directory that belongs to
// somebody else, so what lies beneath one must be a tree of its own.
func (s *surveyor) reach(dir string) {
	if underReplaced(dir) || s.mountsBeneath(dir) || isFile(dir) {
		return
	}
	top := dir // the topmost directory from which on all belong to this user
	for mine(filepath.Dir(top)) && mine(top) {
		top = filepath.Dir(top)
	}
	// What lies in the root of a tree is copied up if it is this user's: a
	// tree's root always is.
	if t := s.env.treeOf(top); t != top && (t != filepath.Dir(top) || !mine(top)) && !s.mountsBeneath(top) {
		s.env.Trees = append(s.env.Trees, top)
	}
}

func mine(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || !info.IsDir()
}

// workspace makes a tree of the workspace where it is not in one yet, because
// it lies under a directory that the sandbox has its own of.
func (s *surveyor) workspace(dir string) error {
	if s.env.treeOf(dir) != "" && !underReplaced(dir) {
		return nil
	}
	if list := (&Environment{mounts: s.mounts}).MountsBeneath(dir); len(list) > 0 {
		return &errs.Error{
			Op: "copying", Path: dir, Kind: errs.ErrNotSupported, Err: &MountedError{list},
			Hints: []string{"sudo umount " + pathlist.Printable(list[0]), "sudo snapfs run …"},
		}
	}
	s.env.Trees = append(s.env.Trees, dir)
	return nil
}

// treeOf gives the tree that holds path: the one deepest down, or "".
func (e *Environment) treeOf(path string) string {
	best := ""
	for _, t := range e.Trees {
		if Within(path, t) && len(t) > len(best) {
			best = t
		}
	}
	return best
}

// MountedBeneath reports whether something is mounted in dir.
func (e *Environment) MountedBeneath(dir string) bool {
	return slices.ContainsFunc(e.mounts, func(m mount.Point) bool { return m.Path != dir && Within(m.Path, dir) })
}

func (s *surveyor) at(dir string) *mount.Point {
	for i, m := range s.mounts {
		if m.Path == dir {
			return &s.mounts[i]
		}
	}
	return nil
}

// holding finds the mount that a path lies on.
func (s *surveyor) holding(path string) *mount.Point {
	var best *mount.Point
	for i, m := range s.mounts {
		if Within(path, m.Path) && (best == nil || len(m.Path) > len(best.Path)) {
			best = &s.mounts[i]
		}
	}
	return best
}

func (s *surveyor) mountsBeneath(dir string) bool {
	return (&Environment{mounts: s.mounts}).MountedBeneath(dir)
}

// automounted are the snapshots that ZFS mounts by itself beneath the .zfs of a dataset, when somebody looks at one,
// and unmounts some minutes later (zfs_expire_snapshot in zfs(4)). No environment is laid out around them.
func automounted(m mount.Point) bool {
	return m.Type == "zfs" && strings.Contains(m.Path, "/.zfs/snapshot/")
}

// visible leaves out the mounts that others hide: those that another is mounted
// right on, and those beneath a directory that another is mounted on.
func visible(mounts []mount.Point) []mount.Point {
	shadowed := func(m mount.Point) bool {
		for {
			if slices.ContainsFunc(mounts, func(n mount.Point) bool {
				return n.Parent == m.Parent && n.ID != m.ID && n.Path != m.Path && Within(m.Path, n.Path)
			}) {
				return true
			}
			i := slices.IndexFunc(mounts, func(n mount.Point) bool { return n.ID == m.Parent && n.ID != m.ID })
			if i < 0 {
				return false
			}
			m = mounts[i]
		}
	}
	return slices.DeleteFunc(slices.Clone(mounts), func(m mount.Point) bool {
		return shadowed(m) || slices.ContainsFunc(mounts, func(n mount.Point) bool {
			return n.Parent == m.ID && n.ID != m.ID && n.Path == m.Path
		})
	})
}

// Within reports whether path is dir or lies beneath it.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && len(path) > len(dir) && path[len(dir)] == '/'
}

// gone reports whether path lies under a replaced directory.
func underReplaced(path string) bool {
	return slices.ContainsFunc(replaced, func(d string) bool { return Within(path, d) })
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.IsDir()
}

// pseudo filesystems hold no files but what the kernel says of itself.
func pseudo(fstype string) bool {
	switch fstype {
	case "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "debugfs", "tracefs", "securityfs",
		"pstore", "bpf", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "autofs", "rpc_pipefs", "nsfs", "efivarfs", "selinuxfs":
		return true
	}
	return false
}

// remote filesystems are changed by other machines.
func remote(fstype string) bool {
	switch fstype {
	case "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.rclone":
		return true
	}
	return false
}

func readOnly(m mount.Point) bool {
	return strings.HasPrefix(m.Options, "ro,") || m.Options == "ro" || strings.HasPrefix(m.SuperOptions, "ro,") || m.SuperOptions == "ro"
}

// caseless filesystems cannot be a layer of an overlay (fs/overlayfs/params.c
// refuses dentries with their own hash or comparison).
func caseless(fstype string) bool {
	switch fstype {
	case "vfat", "msdos", "exfat", "ntfs3", "hfsplus", "iso9660", "udf":
		return true
	}
	return false
}

// Over reports whether a path of a tree is, or lies beneath, a place where
// something is mounted.
func (e *Environment) Over(tree, path string) bool {
	for _, m := range e.mounts {
		if m.Path != tree && Within(m.Path, tree) && Within(path, m.Path) {
			return true
		}
	}
	return false
}
