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

// An Environment is the part of the host's filesystems that a sandbox sees, as paths. Paths in
// none of its lists, or under a replaced directory, do not exist in the sandbox.
type Environment struct {
	// Trees are copied, parents before their children; "/" first, unless it is a frame.
	Trees []string
	// Shown are visible read-only: read-only filesystems, single files that are mount points, and
	// filesystems that cannot be an overlay's lower.
	Shown []string
	// Omitted are empty directories in the sandbox: filesystems of other machines or of programs,
	// which cannot be copied.
	Omitted []string
	// Frames are directories that only hold mount points: their entries are trees and frames
	// of their own, and they are read-only in the sandbox. In a user namespace the kernel
	// refuses an overlay of a directory that has mounts under it, because it locks the mounts
	// together (mount_namespaces(7)).
	Frames []string

	mounts []mount.Point
}

// replaced lists the directories that a sandbox does not share with the host: every sandbox has new ones.
var replaced = []string{"/proc", "/sys", "/dev", "/run", "/tmp"}

// ownViews is true on a system whose processes can see different files at one path (mount
// namespaces). On other systems a sandbox is a copy of its workspace at another path, and
// nothing else is copied.
const ownViews = runtime.GOOS == "linux"

// Survey returns the environment that a new sandbox with this workspace would see, from the filesystems that
// are mounted now. state is the state directory, which is left out. privileged means that the sandbox can
// mount an overlay anywhere.
func Survey(workspace, state string, privileged bool) (*Environment, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, fmt.Errorf("reading this machine's mounts: %w", err)
	}
	all := visible(mounts)
	s := surveyor{mounts: slices.DeleteFunc(slices.Clone(all), automounted), state: state, work: workspace, fuse: syscall.Access("/dev/fuse", 2|4) == nil}
	if m := s.holding(workspace); m != nil && remote(m.Type) {
		return nil, &errs.Error{
			Op: "copying", Path: workspace, Kind: errs.ErrNotSupported,
			Err: fmt.Errorf("the workspace lies on a network filesystem (%s at %s), whose files other machines change", m.Type, m.Path),
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

// A surveyor builds an Environment for [Survey]: it decides for each directory and mount whether the sandbox
// copies it, shows it read-only or omits it.
type surveyor struct {
	mounts []mount.Point
	state  string
	work   string
	fuse   bool // this user may start FUSE servers
	env    Environment
}

// whole goes through all mounts of the host and makes each a tree of the sandbox, shows it read-only, or
// omits it. It serves a privileged user, whose overlay of "/" does not include the mounts under it.
func (s *surveyor) whole() error {
	for _, m := range s.mounts {
		switch {
		case underReplaced(m.Path) || Within(m.Path, s.state):
		case m.Type == "overlay" && m.Path != "/" && !s.holds(m):
			// Probably of a container engine. The kernel maps no ids through an overlay (EINVAL), so a
			// sandbox with ids of its own cannot show it.
			s.env.Omitted = append(s.env.Omitted, m.Path)
		default:
			s.sort(m)
		}
	}
	return nil
}

// holds reports whether the workspace of the new sandbox lies at or under the mount point of m, a mount of
// the host.
func (s *surveyor) holds(m mount.Point) bool { return Within(s.work, m.Path) }

// sort decides how the sandbox sees a mount of the host, by the type of its filesystem: as a copied tree,
// read-only, or not at all.
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

// split makes dir a tree, which the sandbox copies, if nothing is mounted under it. Otherwise it makes dir a
// frame, a directory that only holds mount points, and splits its entries.
func (s *surveyor) split(dir string) error {
	if !s.hasMountsBelow(dir) || s.canServe(dir) {
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
			return nil // the sandbox cannot enter it either; or it has just vanished
		}
		return fmt.Errorf("reading %s: %w", dir, err)
	}
	return s.frame(dir, entries)
}

// frame makes dir a frame, a directory of the sandbox that only holds mount points. The entries in which this
// user may write are split further (into trees and frames); the others are shown read-only.
func (s *surveyor) frame(dir string, entries []fs.DirEntry) error {
	s.env.Frames = append(s.env.Frames, dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var err error
		switch {
		case !e.IsDir() || underReplaced(path) || !enterable(path):
		case dir == "/" || mine(path) || Writable(path):
			err = s.split(path)
		default: // not writable; reach finds writable directories in it
			err = s.show(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// show adds a directory that this user may not write to to those that the sandbox shows read-only. A small
// one with mounts below it becomes a frame instead: the kernel can then make overlays of those directories in
// it that have no mounts, and no socket can be reached through an overlay.
func (s *surveyor) show(dir string) error {
	const small = 16 // entries: each costs a mount
	entries := firstEntries(dir, small+1)
	if len(entries) == 0 || len(entries) > small || !s.hasMountsBelow(dir) {
		s.env.Shown = append(s.env.Shown, dir)
		return nil
	}
	return s.frame(dir, entries)
}

// canServe reports whether a directory of this user with mounts under it can be a tree all the same: a FUSE
// server reads the directory by its paths, so the kernel makes no overlay of it.
func (s *surveyor) canServe(dir string) bool { return s.fuse && mine(dir) }

// Writable reports whether the user of this process may write in a directory.
func Writable(dir string) bool { return syscall.Access(dir, 2) == nil }

// enterable reports whether the user of this process may enter a directory. One that this user cannot enter
// is empty in the sandbox.
func enterable(dir string) bool { return syscall.Access(dir, 1) == nil }

// reach makes sure that an ordinary user can write to dir in the sandbox. An overlay in a user namespace
// cannot copy up a directory of another owner; if dir lies in such a directory, it becomes a tree of its own.
func (s *surveyor) reach(dir string) {
	if underReplaced(dir) || isFile(dir) {
		return
	}
	if s.hasMountsBelow(dir) && !s.canServe(dir) {
		if mine(dir) && s.env.treeOf(dir) == "" && !slices.Contains(s.env.Frames, dir) {
			_ = s.split(dir) // it can be read: it is this user's
		}
		return
	}
	top := dir // the topmost directory on the way whose children on it all belong to this user
	for mine(filepath.Dir(top)) && mine(top) {
		top = filepath.Dir(top)
	}
	// The kernel can copy up an entry of a tree's root if the entry belongs to this user: the root
	// itself always can be.
	if t := s.env.treeOf(top); t != top && (t != filepath.Dir(top) || !mine(top)) && (!s.hasMountsBelow(top) || s.canServe(top)) {
		s.env.Trees = append(s.env.Trees, top)
	}
}

// mine reports whether a directory belongs to the user of this process, whose sandbox can then write to it.
func mine(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// isFile reports whether path is something other than a directory, or missing.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || !info.IsDir()
}

// workspace makes the workspace a tree of its own if no tree contains it, as below /tmp. Errors:
// errs.ErrNotSupported if something is mounted in it.
func (s *surveyor) workspace(dir string) error {
	if s.env.treeOf(dir) != "" && !underReplaced(dir) {
		return nil
	}
	if list := (&Environment{mounts: s.mounts}).MountsBelow(dir); len(list) > 0 {
		hints := []string{"sudo umount " + errs.Quoted(list[0]), "sudo snapfs run …"}
		if dir == "/" { // whose mounts a machine needs
			hints[0] = "snapfs run -C DIRECTORY …   # another workspace than /"
		}
		return &errs.Error{Op: "copying", Path: dir, Kind: errs.ErrNotSupported, Err: mountedError(list), Hints: hints}
	}
	s.env.Trees = append(s.env.Trees, dir)
	return nil
}

// treeOf returns the path of the innermost tree of the environment (all trees that a sandbox forks) that
// holds path, or "".
func (e *Environment) treeOf(path string) string {
	best := ""
	for _, t := range e.Trees {
		if Within(path, t) && len(t) > len(best) {
			best = t
		}
	}
	return best
}

// HasMountsBelow reports whether a filesystem of the host is mounted under dir.
func (e *Environment) HasMountsBelow(dir string) bool {
	return slices.ContainsFunc(e.mounts, func(m mount.Point) bool { return m.Path != dir && Within(m.Path, dir) })
}

// at returns the host's mount whose mount point is dir, or nil.
func (s *surveyor) at(dir string) *mount.Point {
	for i, m := range s.mounts {
		if m.Path == dir {
			return &s.mounts[i]
		}
	}
	return nil
}

// holding returns the innermost mount of the host that contains path, or nil.
func (s *surveyor) holding(path string) *mount.Point {
	var best *mount.Point
	for i, m := range s.mounts {
		if Within(path, m.Path) && (best == nil || len(m.Path) > len(best.Path)) {
			best = &s.mounts[i]
		}
	}
	return best
}

// hasMountsBelow reports whether a filesystem of the host is mounted under dir.
func (s *surveyor) hasMountsBelow(dir string) bool {
	return (&Environment{mounts: s.mounts}).HasMountsBelow(dir)
}

// automounted reports whether a mount of the host is a snapshot that ZFS mounted by itself under .zfs when a
// process opened it. ZFS unmounts it some minutes later (zfs_expire_snapshot in zfs(4)), so a sandbox does
// not get it as a tree.
func automounted(m mount.Point) bool {
	return m.Type == "zfs" && strings.Contains(m.Path, "/.zfs/snapshot/")
}

// visible returns those mounts of the host that are not hidden by another mount on them or on a parent
// directory.
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

// Within reports whether path is dir or lies under it. Both are absolute and clean.
func Within(path, dir string) bool { return pathlist.Within(path, dir) }

// underReplaced reports whether path lies under a directory, such as /proc, of which every sandbox has a new
// one.
func underReplaced(path string) bool {
	return slices.ContainsFunc(replaced, func(d string) bool { return Within(path, d) })
}

// isDir reports whether path is a directory. It returns true for a path that cannot be read.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.IsDir()
}

// pseudo reports whether a filesystem of this type, such as proc, only shows state of the kernel and has no
// files to copy.
func pseudo(fstype string) bool {
	switch fstype {
	case "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "debugfs", "tracefs", "securityfs",
		"pstore", "bpf", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "autofs", "rpc_pipefs", "nsfs", "efivarfs", "selinuxfs":
		return true
	}
	return false
}

// remote reports whether other machines can change files on a filesystem of this type, such as nfs. A sandbox
// does not see such a mount below its trees.
func remote(fstype string) bool {
	switch fstype {
	case "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.rclone":
		return true
	}
	return false
}

// readOnly reports whether a mount of the host, or its filesystem, is read-only.
func readOnly(m mount.Point) bool {
	return strings.HasPrefix(m.Options, "ro,") || m.Options == "ro" || strings.HasPrefix(m.SuperOptions, "ro,") || m.SuperOptions == "ro"
}

// caseless reports whether overlayfs refuses a filesystem of this type as a layer because the filesystem
// compares names in its own way, such as vfat (fs/overlayfs/params.c).
func caseless(fstype string) bool {
	switch fstype {
	case "vfat", "msdos", "exfat", "ntfs3", "hfsplus", "iso9660", "udf":
		return true
	}
	return false
}

// CrossesMount reports whether path, in the tree, lies on another filesystem than the tree: it is a mount
// point, or below one.
func (e *Environment) CrossesMount(tree, path string) bool {
	for _, m := range e.mounts {
		if m.Path != tree && Within(m.Path, tree) && Within(path, m.Path) {
			return true
		}
	}
	return false
}
