package attempts

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
)

// A NamedPath is a path that a command named, and that its sandbox hides.
type NamedPath struct {
	// Path is the file or directory, and Place the hidden path that is Path or a directory above it.
	Path  string `json:"path"`
	Place string `json:"place"`
}

// A Naming holds the texts of a command in which [Naming.Hidden] looks for paths.
type Naming struct {
	// Args are the command's arguments, and Output is the end of its output, or "" if that is unknown.
	Args   []string
	Output string
	// Dir is the command's working directory, and Home its user's home directory, or "".
	Dir, Home string
}

// The bounds of the search in a command's arguments: it takes milliseconds at most.
const (
	maxNamed     = 8        // paths that are reported
	maxNamedText = 64 << 10 // bytes of arguments
)

// Hidden returns the paths that the command names and that lie in one of places, the hidden paths of its
// sandbox, one for each place. It is for a command that failed without being observed. It finds no program that
// opens a hidden file without naming it, and cannot know whether the command failed for the path.
func (n Naming) Hidden(places []string) []NamedPath {
	var named []NamedPath
	for _, path := range n.paths() {
		place := hiddenIn(path, places)
		if place == "" || slices.ContainsFunc(named, func(p NamedPath) bool { return p.Place == place }) {
			continue
		}
		if named = append(named, NamedPath{Path: path, Place: place}); len(named) == maxNamed {
			break
		}
	}
	return named
}

// Leaves reports whether the command names a path outside of the directory dir.
func (n Naming) Leaves(dir string) bool {
	return slices.ContainsFunc(n.paths(), func(path string) bool { return !hostfs.Within(path, dir) })
}

// paths returns the absolute paths that the texts of the command name. It repeats one that they name repeatedly.
func (n Naming) paths() []string {
	var paths []string
	left := maxNamedText
	for _, arg := range n.Args {
		if left -= len(arg); left < 0 {
			break
		}
		switch {
		case filepath.IsAbs(arg):
			paths = append(paths, filepath.Clean(arg))
		case arg != "" && arg[0] != '-':
			paths = append(paths, filepath.Join(n.Dir, arg))
		}
		paths = append(paths, n.pathsIn(arg)...)
	}
	return append(paths, n.pathsIn(n.Output)...)
}

// pathsIn returns the paths in text that are absolute or begin with the home directory, such as ~/x. A path ends at a
// space, or at a character that separates words in a shell, an option or a message.
func (n Naming) pathsIn(text string) []string {
	var paths []string
	ends := func(c rune) bool { return c <= ' ' || strings.ContainsRune("'\"`:,;()<>|&", c) }
	for word := range strings.FieldsFuncSeq(text, ends) {
		for word != "" {
			if path := n.pathAt(word); path != "" {
				paths = append(paths, path)
			}
			i := strings.IndexAny(word, "=@") + 1
			if i == 0 {
				break
			}
			word = word[i:]
		}
	}
	return paths
}

// pathAt returns the path that word is, or "". For a pattern, or a name with a variable in it, it returns the
// directory.
func (n Naming) pathAt(word string) string {
	path := word
	for _, home := range []string{"~/", "$HOME/", "${HOME}/"} {
		if rest, ok := strings.CutPrefix(word, home); ok && n.Home != "" {
			path = n.Home + "/" + rest
		}
	}
	if !filepath.IsAbs(path) {
		return ""
	}
	if i := strings.IndexAny(path, "*?[{$"); i >= 0 {
		path = filepath.Dir(path[:i] + "x")
	}
	return filepath.Clean(path)
}

// hiddenIn returns the one of places in which path lies, as it is written or with the host's symbolic links
// followed, or "" if there is none. It does not depend on whether the hidden place contains path: a program in the sandbox, which
// may see the answer, must not learn that.
func hiddenIn(path string, places []string) string {
	for _, path := range []string{path, followed(path)} {
		for _, place := range places {
			if hostfs.Within(path, place) {
				return place
			}
		}
	}
	return ""
}

// followed returns path with the symbolic links followed of the longest part that exists.
func followed(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, path[len(dir):])
		}
		if dir == "/" || dir == "." {
			return path
		}
	}
}
