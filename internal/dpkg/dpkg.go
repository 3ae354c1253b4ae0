// Package dpkg finds the programs that a Debian package installed on this host.
//
// It reads dpkg's own lists of files and runs no program. It reads them on the host: a sandbox may write to its
// copy of the lists, and must not decide by that what it may execute.
package dpkg

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// A database is dpkg's directory with the lists of the files of each installed package.
type database string

// host is the database of this host.
const host database = "/var/lib/dpkg"

// texts are directories whose files are no programs of a package, but documentation, with scripts as examples. They hold
// most files of many packages, and to look at each would take milliseconds.
var texts = []string{"/usr/share/doc/", "/usr/share/info/", "/usr/share/locale/", "/usr/share/man/"}

// IsName reports whether text can be the name of a Debian package, such as git, or with its architecture, such as
// git:amd64.
func IsName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	base, arch, with := strings.Cut(text, ":")
	return len(base) > 1 && strings.Trim(base, letters+"+.-") == "" && strings.Contains(letters, base[:1]) &&
		strings.Trim(arch, letters+"-") == "" && with == (arch != "")
}

// Programs returns the programs of the Debian package called pkg, such as git or git:amd64: the executable regular
// files that dpkg installed for it on this host, each by its absolute path with the symbolic links of its directory
// followed. Files below /usr/share/doc, info, locale and man do not count. For a name without an architecture, it returns
// the programs of every architecture. installed is false if dpkg has no list of the package's files.
//
// Cost: about a microsecond for each file of the package. Errors: those of reading dpkg's lists.
func Programs(pkg string) (programs []string, installed bool, err error) { return host.programs(pkg) }

// Installs reports whether the Debian package called pkg installed program on this host. program is the absolute path
// of a program, with symbolic links followed. It returns false if dpkg's lists cannot be read.
func Installs(pkg, program string) bool {
	programs, _, err := Programs(pkg)
	return err == nil && slices.Contains(programs, program)
}

// programs returns the programs of a package, as [Programs] does.
func (db database) programs(pkg string) (programs []string, installed bool, err error) {
	f, installed, err := db.find(pkg)
	return f.programs, installed, err
}

// A found has the regular files of a package: its programs, and plain, those that are not executable. dirs are the
// directories of all files that the package's lists name, documentation left out.
type found struct {
	programs, plain []string
	dirs            map[string]bool
}

// find looks for the files of a package. Cost and errors are those of [Programs].
func (db database) find(pkg string) (f found, installed bool, err error) {
	const op = "reading the list of a package's files"
	moved, err := db.diversions(pkg)
	if err != nil {
		return f, false, errs.With(op, pkg, err)
	}
	f.dirs = map[string]bool{}
	seen, l := map[string]bool{}, finder{dirs: map[string]string{}}
	for _, list := range db.lists(pkg) {
		text, err := os.ReadFile(filepath.Join(string(db), "info", list))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found{}, false, errs.With(op, pkg, err)
		}
		installed = true
		paths := candidates(string(text), moved)
		l.readCrowded(paths)
		for _, path := range paths {
			f.dirs[filepath.Dir(path)] = true
			real, executable := l.fileAt(path)
			if real == "" || seen[real] {
				continue
			}
			seen[real] = true
			if executable {
				f.programs = append(f.programs, real)
			} else {
				f.plain = append(f.plain, real)
			}
		}
	}
	return f, installed, nil
}

// candidates returns the absolute paths of text, the list of a package's files, that may be programs, with the
// diversions moved applied. It drops documentation, and each directory that has another path of the list below it.
func candidates(text string, moved map[string]string) (paths []string) {
	for line := range strings.Lines(text) {
		path := strings.TrimSuffix(line, "\n")
		if n := len(paths); n > 0 {
			if below, ok := strings.CutPrefix(path, paths[n-1]); ok && strings.HasPrefix(below, "/") {
				paths = paths[:n-1] // dpkg lists a directory before what is in it
			}
		}
		if to, ok := moved[path]; ok {
			path = to
		}
		if filepath.IsAbs(path) && !slices.ContainsFunc(texts, func(dir string) bool { return strings.HasPrefix(path, dir) }) {
			paths = append(paths, path)
		}
	}
	return paths
}

// lists returns the names that the lists of a package's files can have. A list has the architecture in its name only
// if the package can be installed for several at once.
func (db database) lists(pkg string) []string {
	base, arch, qualified := strings.Cut(pkg, ":")
	switch {
	case qualified && arch == native():
		return []string{pkg + ".list", base + ".list"}
	case qualified:
		return []string{pkg + ".list"}
	}
	all := []string{pkg + ".list", pkg + ":" + native() + ".list"}
	further, _ := os.ReadFile(filepath.Join(string(db), "arch")) // only hosts with several architectures have it
	for _, arch := range strings.Fields(string(further)) {
		if list := pkg + ":" + arch + ".list"; !slices.Contains(all, list) {
			all = append(all, list)
		}
	}
	return all
}

// native returns Debian's name for the architecture of this program.
func native() string {
	other := map[string]string{"386": "i386", "arm": "armhf", "ppc64le": "ppc64el"}
	if arch, ok := other[runtime.GOARCH]; ok {
		return arch
	}
	return runtime.GOARCH
}

// diversions returns where dpkg installed files of a package that another package or the administrator has moved to
// another name (dpkg-divert), by the path in the package's list. The file at that path is then of the other package.
func (db database) diversions(pkg string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(string(db), "diversions"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	base, _, _ := strings.Cut(pkg, ":")
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	moved := map[string]string{}
	for ; len(lines) >= 3; lines = lines[3:] { // from, to, and the package whose own file stays; ":" for none
		if from, to, by := lines[0], lines[1], lines[2]; by != base {
			moved[from] = to
		}
	}
	return moved, nil
}

// A finder finds the programs among the files of one package.
type finder struct {
	dirs map[string]string          // directories, with a slash at the end, with their symbolic links followed; "" if that fails
	read map[string]map[string]bool // the names of the regular files in the directories that readCrowded has read
}

// crowded is the number of files of a package in one directory from which on the finder reads the directory instead of
// each file's attributes. Git has nearly 200 symbolic links in one directory; reading it takes a quarter of the time.
const crowded = 64

// readCrowded reads the directories that have many of paths in them, to find out which of these are regular files. A
// directory that cannot be read is left out.
func (l *finder) readCrowded(paths []string) {
	count := map[string]int{}
	for _, path := range paths {
		dir, _ := filepath.Split(path)
		if count[dir]++; count[dir] != crowded {
			continue
		}
		if names := regularFiles(dir); names != nil {
			if l.read == nil {
				l.read = map[string]map[string]bool{}
			}
			l.read[dir] = names
		}
	}
}

// regularFiles returns the names of the regular files in the directory dir; nil if it cannot be read.
func regularFiles(dir string) map[string]bool {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, err := f.ReadDir(-1) // it calls lstat(2) where the filesystem does not give the type of an entry
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			names[e.Name()] = true
		}
	}
	return names
}

// fileAt returns the path of the regular file at the absolute path, with the symbolic links of its directory followed,
// and whether it is executable; "" if there is none.
func (l *finder) fileAt(path string) (real string, executable bool) {
	dir, base := filepath.Split(path)
	if names, ok := l.read[dir]; ok && !names[base] {
		return "", false
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	to, ok := l.dirs[dir]
	if !ok {
		to, _ = filepath.EvalSymlinks(dir)
		l.dirs[dir] = to
	}
	if to == "" {
		return "", false
	}
	return filepath.Join(to, base), info.Mode().Perm()&0o111 != 0
}
