package selftest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/isolate"
)

// plantedVariable is an environment variable that nobody names, so that no command in a sandbox
// gets it.
const plantedVariable = "SNAPFS_PROVE_UNNAMED"

// A subject returns the paths of a sandbox that a probe tries to reach. If it returns none,
// the probe is reported as held, with the texts tried and none.
type subject struct {
	paths       func(context.Context, *catalog.Record, *supervise.Supervisor) []string
	tried, none string
	// after, if set, removes the paths that it made.
	after func(paths []string)
}

// subjects returns, by the name of a probe, the paths or names that the probe tries and that
// are known only once the sandbox exists.
func (ts *Tester) subjects() map[string]subject {
	return map[string]subject{
		"state": {paths: func(ctx context.Context, rec *catalog.Record, _ *supervise.Supervisor) []string {
			return ts.ownPlaces(ctx, rec)
		}},
		"variables": {paths: func(context.Context, *catalog.Record, *supervise.Supervisor) []string {
			return []string{plantedVariable}
		}},
		"masked": {
			paths: func(_ context.Context, _ *catalog.Record, h *supervise.Supervisor) []string {
				return some(h.Hidden, isThere)
			},
			tried: "read what is hidden", none: "there is nothing to hide on this machine",
		},
		"late-secret": {
			paths: func(_ context.Context, _ *catalog.Record, h *supervise.Supervisor) []string {
				return plantSecret(h.Hidden)
			},
			tried: "read what the host makes at a hidden place", none: "no file can be made in the home directory",
			after: removeSecret,
		},
		"read-only": {
			paths: func(_ context.Context, _ *catalog.Record, h *supervise.Supervisor) []string {
				return some(asTheyAre(h.Mounts), mayWrite)
			},
			tried: "write to what is shown as it really is", none: "nothing is shown so that could be written to",
		},
		"host-socket": {
			paths: func(_ context.Context, rec *catalog.Record, h *supervise.Supervisor) []string {
				return some(ts.sockets(rec, h.Mounts), mayConnect)
			},
			tried: "reach the host's sockets in what is shown as it really is", none: "no program of the host listens there for this user",
		},
	}
}

// plantedName is the name of the file that plantSecret makes.
const plantedName = "secret"

// plantSecret makes a file at a place of the home directory that sandboxes do not see, and returns its path. It takes
// none of masked, the places that existed when the sandbox started. It returns nothing if no file can be made.
func plantSecret(masked []string) []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	for _, place := range hostfs.SelfTestPlaces {
		dir := filepath.Join(home, place)
		if slices.Contains(masked, dir) {
			if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > time.Hour { // of a killed self-test
				removeSecret([]string{filepath.Join(dir, plantedName)})
			}
			continue
		}
		_ = os.Mkdir(filepath.Dir(dir), 0o755) // another self-test may have made it
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		file := filepath.Join(dir, plantedName)
		if err := os.WriteFile(file, []byte("a secret that came late\n"), 0o644); err == nil {
			return []string{file}
		}
		removeSecret([]string{file})
	}
	return nil
}

// removeSecret removes the files that plantSecret has made, with their directories.
func removeSecret(paths []string) {
	for _, path := range paths {
		dir := filepath.Dir(path)
		_ = os.Remove(path) // the next self-test takes another place
		_ = os.Remove(dir)
		_ = os.Remove(filepath.Dir(dir)) // fails as long as another self-test has a place there
	}
}

// ownPlaces returns the paths at which snapfs stores sandboxes, this one and all others: the
// state directory, and the backends' data outside of it.
func (ts *Tester) ownPlaces(ctx context.Context, rec *catalog.Record) []string {
	paths := []string{ts.cat.Dir()}
	for _, t := range rec.Trees {
		b, err := ts.engine.Host.BackendOf(ctx, t)
		if err == nil && b.Facts().Hidden != "" { // a vanished tree has none
			paths = append(paths, b.Facts().Hidden)
		}
	}
	return some(paths, isThere)
}

// asTheyAre returns host paths that the sandbox shows read-only: the regular files of a
// skeleton; a read-only directory and, if this user may not write it, entries in it that the
// user may.
func asTheyAre(mounts []isolate.Mount) (paths []string) {
	for _, m := range mounts {
		switch {
		case m.Skeleton != "":
			entries, _ := os.ReadDir(m.Skeleton) // an unreadable directory has no entries
			for _, e := range entries {
				if e.Type().IsRegular() { // its directories are trees of the sandbox
					paths = append(paths, filepath.Join(m.Target, e.Name()))
				}
			}
		case m.ReadOnly && m.Source == m.Target:
			paths = append(paths, m.Target)
			if syscall.Access(m.Target, 2) == syscall.EACCES { // EROFS would be the filesystem's
				paths = append(paths, firstWithin(m.Target, mounts, 100)...)
			}
		}
	}
	return paths
}

// sockets returns the sockets of the host's programs in directories that the sandbox shows as they are on the host.
func (ts *Tester) sockets(rec *catalog.Record, mounts []isolate.Mount) []string {
	env, err := hostfs.Survey(rec.Workspace, ts.cat.Dir(), hostfs.Privileged())
	if err != nil {
		return nil
	}
	var dirs []string
	for _, m := range mounts {
		if m.ReadOnly && m.Source == m.Target {
			dirs = append(dirs, m.Target)
		}
	}
	return env.Sockets(dirs)
}

// mayConnect reports whether this user could connect to a socket outside a sandbox.
func mayConnect(path string) bool { return hostfs.Writable(path) }

// firstWithin returns the nearest entry of a directory that this user may write. It examines
// at most names entries and skips other mounts, which may answer late. Cost: a microsecond for
// each entry.
func firstWithin(dir string, mounts []isolate.Mount, names int) []string {
	top, err := os.Lstat(dir)
	if err != nil {
		return nil
	}
	for queue := []string{dir}; len(queue) > 0 && names > 0; queue = queue[1:] {
		entries := firstEntries(queue[0], names)
		names -= len(entries)
		for _, entry := range entries {
			path := filepath.Join(queue[0], entry.Name())
			at, err := os.Lstat(path)
			switch {
			case err != nil || !sameDevice(at, top) || slices.ContainsFunc(mounts, func(m isolate.Mount) bool { return m.Target == path }):
			case mayWrite(path):
				return []string{path}
			case at.IsDir():
				queue = append(queue, path)
			}
		}
	}
	return nil
}

func sameDevice(a, b os.FileInfo) bool {
	one, ok := a.Sys().(*syscall.Stat_t)
	other, too := b.Sys().(*syscall.Stat_t)
	return ok && too && one.Dev == other.Dev
}

// firstEntries returns at most n entries of a directory, in the order of the filesystem.
func firstEntries(dir string, n int) []os.DirEntry {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, _ := d.ReadDir(n) // an unreadable directory has no entries
	return entries
}

// some returns the first paths for which is returns true, as many as fit into a probe's
// arguments.
func some(paths []string, is func(string) bool) (list []string) {
	for _, path := range paths {
		if len(list) < 500 && !slices.Contains(list, path) && is(path) {
			list = append(list, path)
		}
	}
	return list
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// mayWrite reports whether this user could write to the path outside a sandbox. It does not
// open pipes and devices, because opening one may have an effect.
func mayWrite(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && (info.Mode().IsRegular() || info.IsDir()) && hostfs.Writable(path)
}
