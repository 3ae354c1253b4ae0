package hostfs

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
)

// programs returns the paths of the programs that rules of catalog.Tools allow or deny; nil for nil. A rule
// that is only a name becomes a path in each usual directory of programs.
func programs(rules []string) []string {
	if rules == nil {
		return nil
	}
	paths := []string{}
	add := func(path string) {
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for _, rule := range rules {
		if strings.Contains(rule, "/") {
			add(strings.TrimSuffix(rule, "/*"))
			continue
		}
		for _, dir := range catalog.ProgramDirs {
			if real, err := filepath.EvalSymlinks(dir); err == nil { // /bin is /usr/bin on most machines
				add(filepath.Join(real, rule))
			}
		}
	}
	return paths
}
