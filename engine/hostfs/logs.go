package hostfs

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs/places"
)

// logs returns the machine's logs to hide from a sandbox: those that the caller may read. They are the files
// in the log directory and the entries of its directories, each by itself, so that a server in the sandbox
// can make its own log. at maps a path to where it can be read.
func logs(at func(string) string) (paths []string) {
	entries, _ := os.ReadDir(at(places.LogDir)) // an unreadable or missing one has no logs to hide
	for _, e := range entries {
		if written(e.Name()) {
			continue
		}
		path := filepath.Join(places.LogDir, e.Name())
		if !e.IsDir() {
			paths = append(paths, path)
			continue
		}
		deeper, _ := os.ReadDir(at(path))
		for _, d := range deeper {
			paths = append(paths, filepath.Join(path, d.Name()))
		}
	}
	return paths
}

// written reports whether installing packages or adding users writes the file of this name in /var/log.
// Sandboxes see such a log, because these commands must work in them.
func written(name string) bool {
	for _, prefix := range []string{"alternatives.log", "dpkg.log", "fontconfig.log"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "apt", "btmp", "faillog", "lastlog", "wtmp", "README":
		return true
	}
	return false
}
