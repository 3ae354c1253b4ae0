package pathlist

import (
	"slices"
	"strings"
)

// Within reports whether path is dir or lies below it. Both are absolute and clean.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && len(path) > len(dir) && path[len(dir)] == '/'
}

// Below returns those of paths, a sorted list of relative paths, that lie below the path dir, relative to it. is reports
// whether dir itself is in the list. Cost: two binary searches.
func Below(paths []string, dir string) (rest []string, is bool) {
	at, is := slices.BinarySearch(paths, dir)
	if at == len(paths) || !strings.HasPrefix(paths[at], dir) { // as for most names of a directory
		return nil, false
	}
	above := dir + "/"
	for i, _ := slices.BinarySearch(paths, above); i < len(paths) && strings.HasPrefix(paths[i], above); i++ {
		rest = append(rest, paths[i][len(above):])
	}
	return rest, is
}
