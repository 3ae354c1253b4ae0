package hostfs

import (
	"os"
	"path/filepath"
	"strings"
)

// logDir is the directory of the host with the machine's logs, which snapfs hides from sandboxes.
const logDir = "/var/log"

// logs returns the machine's logs to hide from a sandbox: those that the caller may read. They are the files
// in the log directory and the entries of its directories, each by itself, so that a server in the sandbox
// can make its own log. at maps a path to where it can be read.
func logs(at func(string) string) (paths []string) {
	entries, _ := os.ReadDir(at(logDir)) // an unreadable or missing one has no logs to hide
	for _, e := range entries {
		if written(e.Name()) {
			continue
		}
		path := filepath.Join(logDir, e.Name())
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
