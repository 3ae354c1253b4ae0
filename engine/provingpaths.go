package engine

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/isolate"
)

// A subject is what of a sandbox a probe goes for. Where there is none of it, tried and
// none are what is said: then nothing is to be held.
type subject struct {
	paths       func(*host) []string
	tried, none string
}

// subjects are those that are known only when there is a sandbox, by the probe.
func subjects() map[string]subject {
	return map[string]subject{
		"masked": {
			func(h *host) []string { return some(h.hidden, isThere) },
			"read what is hidden", "there is nothing to hide on this machine",
		},
		"read-only": {
			func(h *host) []string { return some(asTheyAre(h.mounts), mayWrite) },
			"write to what is shown as it really is", "nothing is shown so that could be written to",
		},
	}
}

// asTheyAre are the host's files and directories that are shown as they really are, to
// be read only. Of a skeleton that is its files, where it has them.
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
		}
	}
	return paths
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
	return err == nil && (info.Mode().IsRegular() || info.IsDir()) && writable(path)
}
