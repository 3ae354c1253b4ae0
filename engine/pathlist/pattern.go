package pathlist

import (
	"path/filepath"
	"strings"
)

// Match reports whether pattern matches the absolute path abs or a directory above it. The pattern means the
// same as in a gitignore file in the directory root: ** stands for any number of directories, an element may
// use the wildcards of [filepath.Match], and a pattern with a wildcard and no slash matches at any depth. A
// pattern without a wildcard is a path. Unlike in gitignore, a leading slash begins an absolute path. A
// malformed element matches itself.
func Match(root, pattern, abs string) bool {
	inside := strings.TrimSuffix(root, "/") + "/"
	if !strings.Contains(pattern, "/") && strings.ContainsAny(pattern, "*?[") {
		pattern = inside + "**/" + pattern
	} else if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(root, pattern)
	}
	pattern = filepath.Clean(pattern)
	if abs == pattern || pattern == "/" || strings.HasPrefix(abs, pattern+"/") {
		return true
	}
	if rest, ok := strings.CutPrefix(pattern, inside); ok { // wildcards in root's own name are none
		if abs, ok = strings.CutPrefix(abs, inside); !ok {
			return false
		}
		pattern = rest
	}
	return covers(strings.Split(pattern, "/"), strings.Split(abs, "/"))
}

// covers reports whether the elements of a pattern match all elements of a path, or the first of them, which
// are a directory above it. "**" matches any number of elements.
func covers(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return true
	case len(path) == 0:
		return false
	case pattern[0] == "**":
		return len(pattern) == 1 || covers(pattern[1:], path) || covers(pattern, path[1:])
	}
	ok, err := filepath.Match(pattern[0], path[0])
	return (pattern[0] == path[0] || ok && err == nil) && covers(pattern[1:], path[1:])
}
