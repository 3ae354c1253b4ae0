package pathlist

import (
	"path/filepath"
	"strings"
)

// Match reports whether pattern matches the absolute path abs or a directory above it. The pattern means the
// same as in a gitignore file in the directory root: ** stands for any number of directories, an element may
// use the wildcards of [filepath.Match], and a pattern with a wildcard and no slash matches at any depth. A
// pattern without a wildcard is a path. Unlike in gitignore, a leading slash begins an absolute path. A
// malformed element matches itself. A backslash before a wildcard or a backslash makes it an ordinary character,
// see [Escape]; a pattern with one is no path.
func Match(root, pattern, abs string) bool {
	inside := strings.TrimSuffix(root, "/") + "/"
	if !strings.Contains(pattern, "/") && wild(pattern) {
		pattern = inside + "**/" + pattern
	} else if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(root, pattern)
	}
	pattern = filepath.Clean(pattern)
	if pattern == "/" || !escapes(strings.TrimPrefix(pattern, inside)) && (abs == pattern || strings.HasPrefix(abs, pattern+"/")) {
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
	return (pattern[0] == path[0] && !escapes(pattern[0]) || ok && err == nil) && covers(pattern[1:], path[1:])
}

// special are the characters that mean something else than themselves in a pattern of [Match].
const special = `*?[\`

// Escape returns the pattern that [Match] takes for just this path and what is below it: with a backslash before
// each wildcard and each backslash.
func Escape(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(special, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// Fixed returns the part of an absolute pattern of [Match] before its first element with a wildcard: the directory in
// which all paths lie that it matches, or the pattern itself if it has none. Escaped characters are unescaped.
func Fixed(pattern string) string {
	fixed := "/"
	for element := range strings.SplitSeq(strings.Trim(filepath.Clean(pattern), "/"), "/") {
		if wild(element) {
			break
		}
		fixed = filepath.Join(fixed, unescaped(element))
	}
	return fixed
}

// IsPattern reports whether pattern, one of [Match], has a wildcard, so that it is no path.
func IsPattern(pattern string) bool { return wild(pattern) }

// unescaped returns a pattern without the backslashes that make wildcards ordinary characters.
func unescaped(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) && strings.IndexByte(special, pattern[i+1]) >= 0 {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// wild reports whether a pattern has a wildcard that is not escaped.
func wild(pattern string) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?', '[':
			return true
		case '\\':
			i++
		}
	}
	return false
}

// escapes reports whether a pattern has a backslash that makes the next character an ordinary one.
func escapes(pattern string) bool {
	for i := 0; i+1 < len(pattern); i++ {
		if pattern[i] == '\\' && strings.IndexByte(special, pattern[i+1]) >= 0 {
			return true
		}
	}
	return false
}
