package selftest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/isolate"
)

// A subject is what of a sandbox a probe goes for. Where there is none of it, tried and
// none are what is said: then nothing is to be held.
type subject struct {
	paths       func(context.Context, *catalog.Record, *supervise.Supervisor) []string
	tried, none string
}

// subjects are those that are known only when there is a sandbox, by the probe.
func (ts *Tester) subjects() map[string]subject {
	return map[string]subject{
		"state": {paths: func(ctx context.Context, rec *catalog.Record, _ *supervise.Supervisor) []string {
			return ts.ownPlaces(ctx, rec)
		}},
		"masked": {
			func(_ context.Context, _ *catalog.Record, h *supervise.Supervisor) []string {
				return some(h.Hidden, isThere)
			},
			"read what is hidden", "there is nothing to hide on this machine",
		},
		"read-only": {
			func(_ context.Context, _ *catalog.Record, h *supervise.Supervisor) []string {
				return some(asTheyAre(h.Mounts), mayWrite)
			},
			"write to what is shown as it really is", "nothing is shown so that could be written to",
		},
	}
}

// ownPlaces are where snapfs keeps what it has of a sandbox's trees and of all others: its
// state directory, and what backends have beside the trees.
func (ts *Tester) ownPlaces(ctx context.Context, rec *catalog.Record) []string {
	paths := []string{ts.cat.Dir()}
	for _, t := range rec.Trees {
		b, err := ts.engine.Host.BackendOf(ctx, t)
		if h, ok := b.(snapshot.Hider); ok && err == nil { // a tree that has vanished has none
			paths = append(paths, h.Hidden()...)
		}
	}
	return some(paths, isThere)
}

// asTheyAre are the host's files and directories that are shown as they really are, to
// be read only. Of a skeleton that is its files, where it has them; of a directory that
// this user may not write to, the first thing in it that he may.
func asTheyAre(mounts []isolate.Mount) (paths []string) {
	for _, m := range mounts {
		switch {
		case m.Skeleton != "":
			entries, _ := os.ReadDir(m.Skeleton) // what cannot be read is not in it
			for _, e := range entries {
				if e.Type().IsRegular() { // its directories are trees
					paths = append(paths, filepath.Join(m.Target, e.Name()))
				}
			}
		case m.ReadOnly && m.Source == m.Target:
			paths = append(paths, m.Target)
			if syscall.Access(m.Target, 2) == syscall.EACCES { // not since the filesystem is read-only
				paths = append(paths, firstWithin(m.Target, mounts, 100)...)
			}
		}
	}
	return paths
}

// firstWithin is the first thing in a directory, the nearest one, that this user may write
// to, as far as so many names tell: a microsecond each. What the sandbox has another mount of is not looked
// at, nor another filesystem of the host's, which may answer late.
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

// firstEntries are the first that a directory tells, n at most.
func firstEntries(dir string, n int) []os.DirEntry {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, _ := d.ReadDir(n) // what cannot be read is not looked at
	return entries
}

// some are the first of the paths for which this is so, as many as can be told to a probe.
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

// mayWrite: this user could write to it, but for the sandbox. Pipes and devices are left
// alone: to open one may do something.
func mayWrite(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && (info.Mode().IsRegular() || info.IsDir()) && hostfs.Writable(path)
}
