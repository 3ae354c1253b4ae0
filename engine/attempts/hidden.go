package attempts

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
	hostplaces "github.com/snapfs/snapfs/engine/hostfs/places"
)

// A HiddenPath is a path that a command mentions, and that its sandbox hides, which may be why the command failed.
type HiddenPath struct {
	// Path is the file or directory, and Place the hidden path that is Path or a directory above it.
	Path  string `json:"path"`
	Place string `json:"place"`
}

// Mentions are the texts of a command in which [Mentions.Hidden] and [Mentions.Outside] look for paths. The command
// is not trusted, so that both only compare texts: to look up a path that it printed could contact another host
// (an automounter below /net), or wait forever (a mount whose server is gone).
type Mentions struct {
	// Args are the command's arguments, and Output is the end of its output, or "" if that is unknown.
	Args   []string
	Output string
	// Dir is the command's working directory, and Home its user's home directory, or "".
	Dir, Home string
}

// The bounds of the search in a command's arguments, which then takes milliseconds at most. Further paths and
// arguments are left out.
const (
	maxHidden    = 8        // paths that are reported
	maxMentioned = 64 << 10 // bytes of arguments
)

// Places are the hidden paths of a sandbox, as [Mentions.Hidden] compares a command's paths with them.
type Places struct {
	paths []string
	// Each of targets is a path to which the symbolic links of one of paths lead, and that one.
	targets []HiddenPath
}

// PlacesOf returns the Places of a sandbox that hides the paths hidden. asked are the paths that the sandbox's policy
// hides: it follows the symbolic links of those that are also in hidden, so that the place of a target is the link,
// which is what the policy can change. hidden already contains all targets. It looks up no other path.
func PlacesOf(hidden, asked []string) Places {
	p := Places{paths: hidden}
	for _, path := range asked {
		if !slices.Contains(hidden, path) {
			continue // it is exposed
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			p.targets = append(p.targets, HiddenPath{Path: real, Place: path})
		}
	}
	return p
}

// holding returns the hidden path in which path lies, or "" if there is none; for the target of a link that the policy
// hides, the link. It does not depend on whether the
// hidden path contains path: a program in the sandbox, which may see the answer, must not learn that.
func (p Places) holding(path string) string {
	for _, target := range p.targets {
		if hostfs.Within(path, target.Path) {
			return target.Place
		}
	}
	for _, place := range p.paths {
		if hostfs.Within(path, place) {
			return place
		}
	}
	return ""
}

// Hidden returns the paths that the command mentions and that lie in one of places, the hidden paths of its
// sandbox, one for each place. It is for a command that failed without being observed. It finds no program that
// opens a hidden file without mentioning it, and no path that leads to a hidden one by a symbolic link of the
// command's. It cannot know whether the command failed for the path. A command that changes the accounts of the machine
// mentions [hostplaces.ShadowFile].
func (m Mentions) Hidden(places Places) []HiddenPath {
	var hidden []HiddenPath
	paths := m.paths()
	if m.changesAccounts() {
		paths = append(paths, hostplaces.ShadowFile)
	}
	for _, path := range paths {
		place := places.holding(path)
		if place == "" || slices.ContainsFunc(hidden, func(h HiddenPath) bool { return h.Place == place }) {
			continue
		}
		if hidden = append(hidden, HiddenPath{Path: path, Place: place}); len(hidden) == maxHidden {
			break
		}
	}
	return hidden
}

// accountPrograms are the programs that write the files of accounts and groups with hashes of passwords, such as
// [hostplaces.ShadowFile]. When they cannot write a file, they do not always print its path.
var accountPrograms = []string{
	"useradd", "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "groupmod", "addgroup", "delgroup", "passwd", "chpasswd", "chage", "newusers",
	"gpasswd", "pwconv", "grpconv", "systemd-sysusers",
}

// changesAccounts reports whether the command's arguments, or the end of its output, name a program that changes the
// accounts of the machine.
func (m Mentions) changesAccounts() bool {
	ends := func(c rune) bool { return c <= ' ' || strings.ContainsRune("'\"`:,;()<>|&/", c) }
	left := maxMentioned
	for _, text := range append(slices.Clone(m.Args), m.Output) {
		if left -= len(text); left < 0 {
			return false
		}
		for word := range strings.FieldsFuncSeq(text, ends) {
			if slices.Contains(accountPrograms, word) {
				return true
			}
		}
	}
	return false
}

// Outside reports whether the command mentions a path outside of the directory dir, or changes the accounts of the
// machine, whose files are in /etc.
func (m Mentions) Outside(dir string) bool {
	if m.changesAccounts() {
		return true
	}
	return slices.ContainsFunc(m.paths(), func(path string) bool { return !hostfs.Within(path, dir) })
}

// paths returns the absolute paths that the texts of the command mention. It repeats one that they mention repeatedly.
func (m Mentions) paths() []string {
	var paths []string
	left := maxMentioned
	for _, arg := range m.Args {
		if left -= len(arg); left < 0 {
			break
		}
		switch {
		case filepath.IsAbs(arg):
			paths = append(paths, filepath.Clean(arg))
		case arg != "" && arg[0] != '-':
			paths = append(paths, filepath.Join(m.Dir, arg))
		}
		paths = append(paths, m.pathsIn(arg)...)
	}
	return append(paths, m.pathsIn(m.Output)...)
}

// pathsIn returns the paths in text that are absolute or begin with the home directory, such as ~/x. A path ends at a
// space, or at a character that separates words in a shell, an option or a message.
func (m Mentions) pathsIn(text string) []string {
	var paths []string
	ends := func(c rune) bool { return c <= ' ' || strings.ContainsRune("'\"`:,;()<>|&", c) }
	for word := range strings.FieldsFuncSeq(text, ends) {
		for word != "" {
			if path := m.pathAt(word); path != "" {
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
func (m Mentions) pathAt(word string) string {
	path := word
	for _, home := range []string{"~/", "$HOME/", "${HOME}/"} {
		if rest, ok := strings.CutPrefix(word, home); ok && m.Home != "" {
			path = m.Home + "/" + rest
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
