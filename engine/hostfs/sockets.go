package hostfs

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/isolate"
)

// The sockets of the host's programs in what a sandbox shows as it is on the host. connect(2) looks for the socket by
// its inode, in every network namespace and on read-only mounts too (unix_find_bsd in net/unix/af_unix.c). A snapshot,
// an overlay and a FUSE mount have other inodes, so nothing listens there; a bind mount has the host's. The same holds
// for named pipes, which open(2) connects by their inode.

// maxSocketEntries is how many directory entries [Environment.endpoints] looks at, at most, to find sockets and named
// pipes of the host's programs. Each takes half a microsecond. Among further entries it finds only the sockets that
// /proc/net/unix lists.
const maxSocketEntries = 2000

// withoutSockets makes sure that a sandbox cannot reach sockets and named pipes of the host's programs through the
// host directories that it shows. Where the kernel can make an overlay of a shown directory, it sets NoSockets on the
// mount, which cuts off all sockets and pipes. In the others it adds such a mount for each directory that has a socket
// or a pipe now, or returns its path in hide, to be masked.
func withoutSockets(mounts []isolate.Mount, env *Environment) (all []isolate.Mount, hide []string) {
	works := Privileged() || slices.ContainsFunc(mounts, func(m isolate.Mount) bool { return m.Overlay != nil })
	var bare []string
	for i, m := range mounts {
		switch {
		case m.Source == "" || m.Source != m.Target || !m.ReadOnly:
		case works && env.overlays(m.Source):
			mounts[i].NoSockets = true
		case !env.socketless(m.Source):
			bare = append(bare, m.Source)
		}
	}
	sockets, pipes := env.endpoints(bare)
	for _, socket := range append(sockets, pipes...) {
		i := holding(mounts, socket)
		if i < 0 || !slices.Contains(bare, mounts[i].Target) {
			continue // it lies in a copy, which leads to no program of the host
		}
		if dir := filepath.Dir(socket); works && dir != mounts[i].Target && env.overlays(dir) {
			mounts = append(mounts, isolate.Mount{Target: dir, Source: dir, ReadOnly: true, NoSockets: true, MayVanish: mounts[i].MayVanish})
		} else {
			hide = append(hide, socket)
		}
	}
	return mounts, hide
}

// holding returns the index of the innermost of mounts, those of a sandbox, in whose target path lies, or -1.
func holding(mounts []isolate.Mount, path string) int {
	best := -1
	for i, m := range mounts {
		if Within(path, m.Target) && (best < 0 || len(m.Target) > len(mounts[best].Target)) {
			best = i
		}
	}
	return best
}

// overlays reports whether the kernel can make a read-only overlay of a directory. Its filesystem must
// support that and, for an ordinary user, nothing may be mounted below it.
func (e *Environment) overlays(dir string) bool {
	if !Privileged() && e.HasMountsBelow(dir) || !isDir(dir) {
		return false
	}
	switch e.typeAt(dir) {
	case "ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs", "tmpfs", "zfs", "bcachefs":
		return true
	}
	return false
}

// socketless reports whether the filesystem of dir has no sockets that a program could listen at. That is so
// if no program can write to a filesystem of that type, or the type has no sockets. The sandbox then need not
// hide any there.
func (e *Environment) socketless(dir string) bool {
	switch e.typeAt(dir) {
	case "squashfs", "erofs", "iso9660", "cramfs", "romfs", "vfat", "msdos", "exfat":
		return isDir(dir) && !e.HasMountsBelow(dir)
	}
	return false
}

// typeAt returns the type of the host's filesystem that path lies on, such as "ext4".
func (e *Environment) typeAt(path string) string {
	best := -1
	for i, m := range e.mounts {
		if Within(path, m.Path) && (best < 0 || len(m.Path) > len(e.mounts[best].Path)) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return e.mounts[best].Type
}

// slow reports whether a lookup of path may wait for another machine or a FUSE program, so that the search
// for sockets leaves it out.
func (e *Environment) slow(path string) bool {
	return slices.ContainsFunc(e.mounts, func(m mount.Point) bool {
		return (remote(m.Type) || m.Type == "autofs" || strings.HasPrefix(m.Type, "fuse")) && Within(path, m.Path)
	})
}

// isSocket reports whether path is a Unix socket.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// Sockets returns the unix sockets of the host's programs in directories: those of /proc/net/unix, which
// lists the network namespace of this process, and those among the nearest [maxSocketEntries] directory
// entries. It leaves out sockets that this user cannot look up, since the user's sandbox cannot either, and
// those on filesystems that may be slow to answer.
func (e *Environment) Sockets(dirs []string) []string {
	sockets, _ := e.endpoints(dirs)
	return sockets
}

// endpoints returns what [Environment.Sockets] does and, in pipes, the named pipes among the same directory entries.
func (e *Environment) endpoints(dirs []string) (sockets, pipes []string) {
	if len(dirs) == 0 {
		return nil, nil
	}
	within := func(path string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return Within(path, d) }) && !e.slow(path)
	}
	real := map[string]string{} // directories without symbolic links, as /run for /var/run
	for _, path := range boundSockets() {
		if underReplaced(path) || e.slow(path) {
			continue
		}
		dir := filepath.Dir(path)
		if _, ok := real[dir]; !ok {
			real[dir], _ = filepath.EvalSymlinks(dir) // "" for one that cannot be looked up
		}
		if path = filepath.Join(real[dir], filepath.Base(path)); real[dir] != "" && within(path) && isSocket(path) {
			sockets = append(sockets, path)
		}
	}
	left := maxSocketEntries
	for queue := slices.Clone(dirs); len(queue) > 0 && left > 0; queue = queue[1:] {
		for _, entry := range firstEntries(queue[0], left) {
			left--
			switch path := filepath.Join(queue[0], entry.Name()); {
			case entry.Type() == fs.ModeSocket:
				sockets = append(sockets, path)
			case entry.Type() == fs.ModeNamedPipe:
				pipes = append(pipes, path)
			case entry.IsDir() && !e.slow(path):
				queue = append(queue, path)
			}
		}
	}
	slices.Sort(sockets)
	return slices.Compact(sockets), pipes
}

// firstEntries returns at most n entries of a directory, in the order of the filesystem, so that a search of
// the host stays short. An unreadable directory has none.
func firstEntries(dir string, n int) []fs.DirEntry {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, _ := d.ReadDir(n)
	return entries
}

// boundSockets returns the absolute paths of the Unix sockets at which programs of the host listen, as
// /proc/net/unix lists them (proc_net(5)).
func boundSockets() (paths []string) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		const path = 7 // Num RefCount Protocol Flags Type St Inode Path
		rest := lines.Text()
		for field := 0; field < path && rest != ""; field++ {
			_, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
		}
		if filepath.IsAbs(rest) {
			paths = append(paths, filepath.Clean(rest))
		}
	}
	return paths
}
