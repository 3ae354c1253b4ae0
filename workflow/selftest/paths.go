package selftest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/isolate"
)

// plantedVariable is an environment variable that the self-test sets when it starts a probe in a sandbox. No
// policy names it, so no command in a sandbox may see it; the probe checks that.
const plantedVariable = "SNAPFS_PROVE_UNNAMED"

// A subject finds the paths or names that a probe, an attempt of the self-test to break out of a sandbox,
// tries to reach and that depend on the sandbox. If it finds none, the self-test reports the isolation as
// held, with the texts tried and none.
type subject struct {
	paths       func(context.Context, *catalog.Record, *supervise.Supervisor) []string
	tried, none string
	// after, if set, removes the paths that it made.
	after func(paths []string)
}

// subjects returns, by the name of a probe (attempt of the self-test to break out of a sandbox), the
// functions that find the paths or names which the probe tries to reach and which are known only once the
// sandbox exists.
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
				return some(h.Hidden, func(path string) bool { return isThere(path) && !hostfs.Redacted(path) })
			},
			tried: "read what is hidden", none: "there is nothing to hide on this machine",
		},
		"passwords": {
			paths: func(_ context.Context, _ *catalog.Record, h *supervise.Supervisor) []string {
				return some(h.Hidden, hostfs.Redacted)
			},
			tried: "read the hash of a password", none: "the sandbox cannot read the files with hashes, or they are exposed to it",
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

// plantedName is the name of the file that [plantSecret] creates on the host. The self-test's programs in a
// sandbox try to read it.
const plantedName = "secret"

// plantSecret creates a file in one of the directories of the home directory that sandboxes do not see, and
// returns its path. A probe then checks that a directory with secrets that appears while the sandbox runs is
// hidden. It does not use the paths masked, which existed when the sandbox started. It returns nothing if no
// file can be created.
func plantSecret(masked []string) []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	for _, place := range places.SelfTest {
		dir := filepath.Join(home, place)
		if slices.Contains(masked, dir) {
			removeAbandoned(dir)
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

// removeSecret removes the files and directories that [plantSecret] created on the host to test whether a
// sandbox can read them.
func removeSecret(paths []string) {
	for _, path := range paths {
		dir := filepath.Dir(path)
		_ = os.Remove(path) // the next self-test takes another place
		_ = os.Remove(dir)
		_ = os.Remove(filepath.Dir(dir)) // fails as long as another self-test has a place there
	}
}

// replacedSecret is the name of the self-test's probe that tries to read what the host puts in the place of a hidden
// file while the sandbox runs.
const replacedSecret = "replaced-secret"

// replaced returns the subject of the probe called replacedSecret, which renames another file over the planted one. A
// mask covers the name in the sandbox, and must stay although the name now leads to another file.
func (p *prover) replaced() subject {
	return subject{
		paths: func(context.Context, *catalog.Record, *supervise.Supervisor) []string {
			if p.planted == "" {
				return nil
			}
			next := p.planted + nextFile
			if os.WriteFile(next, []byte("a secret in the place of another\n"), 0o644) != nil || os.Rename(next, p.planted) != nil {
				return nil
			}
			return []string{p.planted}
		},
		tried: "read what the host puts in the place of a hidden file", none: "no file can be made in the home directory",
	}
}

// nextFile ends the name of the file that replaces the one of [plantFile].
const nextFile = ".next"

// plantFile creates a file of the host at one of the places in the home directory that sandboxes do not see, and
// returns its path. A sandbox that starts afterwards has a mask there. It returns "" if no file can be created.
func plantFile() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	for _, place := range places.SelfTest {
		removeAbandoned(filepath.Join(home, place))
	}
	for _, place := range places.SelfTest {
		file := filepath.Join(home, place)
		_ = os.Mkdir(filepath.Dir(file), 0o755) // another self-test may have made it
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			continue // another self-test has it
		}
		_, err = f.WriteString("a secret\n")
		if err = errors.Join(err, f.Close()); err == nil {
			return file
		}
		removePlanted(file)
	}
	return ""
}

// removePlanted removes the file that [plantFile] has created, and the one that was to replace it. file may be "".
func removePlanted(file string) {
	if file == "" {
		return
	}
	_ = os.Remove(file + nextFile) // usually it has replaced the other
	_ = os.Remove(file)            // the next self-test takes another place
	_ = os.Remove(filepath.Dir(file))
}

// removeAbandoned removes from place, a hidden place in the home directory, what a killed self-test has left there.
func removeAbandoned(place string) {
	if isAbandoned(place) {
		removeSecret([]string{filepath.Join(place, plantedName)})
	}
	if next := place + nextFile; isAbandoned(next) {
		_ = os.Remove(next)
		_ = os.Remove(filepath.Dir(next)) // fails as long as another self-test has a place there
	}
}

// isAbandoned reports whether path exists and is older than an hour: a killed self-test has left it.
func isAbandoned(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && time.Since(info.ModTime()) > time.Hour
}

// ownPlaces returns the host paths at which snapfs stores sandboxes, this one and all others: the state
// directory, and the backends' data outside of it. Probes must not reach them.
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

// asTheyAre returns host paths that the sandbox's mounts show read-only, for a self-test's program that tries
// to write to them: the regular files of a skeleton (a copy of a host directory's first level); a read-only
// directory; and, if this user may not write to that directory, entries in it that the user may write to.
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

// sockets returns the Unix sockets of the host's programs in directories that the sandbox shows as they are
// on the host. A self-test's program in the sandbox tries to connect to them.
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

// mayConnect reports whether this user could connect to the Unix socket at path outside a sandbox. Otherwise
// an attempt of the self-test to connect from inside would prove nothing.
func mayConnect(path string) bool { return hostfs.Writable(path) }

// firstWithin returns the nearest entry of the directory dir that this user may write to. A probe in a
// sandbox then tries to write to it. It examines at most names entries and skips other mounts, which may
// answer late. Cost: a microsecond for each entry.
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

// firstEntries returns at most n entries of the directory dir, in the order of the filesystem, so that a
// search for a path to test stays short.
func firstEntries(dir string, n int) []os.DirEntry {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, _ := d.ReadDir(n) // an unreadable directory has no entries
	return entries
}

// some returns those of paths for which is returns true, each once, at most 500: as many as fit into the
// arguments of a probe, which tries to reach them from inside a sandbox.
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

// mayWrite reports whether this user could write to the file or directory at path outside a sandbox. It does
// not open pipes and devices, because opening one may have an effect.
func mayWrite(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && (info.Mode().IsRegular() || info.IsDir()) && hostfs.Writable(path)
}
