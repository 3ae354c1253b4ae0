package hostfs

import (
	"os"
	"path/filepath"
	"strings"
)

// logDir is the directory of the machine's logs.
const logDir = "/var/log"

// logs returns the logs of the machine that hold something and that the caller may read: files
// in the log directory and what is in its directories, entry by entry, so that a server in the
// sandbox can make its own. at is that of findSecrets.
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

// written reports whether the installation of packages and the creation of users write a log,
// which therefore stays.
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
