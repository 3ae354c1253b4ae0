package dpkg

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Cache is a directory in which the programs of packages are stored, so that the next call need not look at all files
// of a package: Node.js has 5,000. "" stores nothing. No other user may write to the directory.
type Cache string

// settled is how long before a call dpkg must have changed a package's list last for its programs to be stored: while
// it installs the package, they may change without the list.
const settled = 10 * time.Minute

// resolution is how old the last change of a directory must be for its time to show the next one, on a filesystem that
// stores times in seconds, too.
const resolution = 3 * time.Second

// Programs returns the programs of a package as the function [Programs] does. If neither dpkg's lists have changed since
// the programs were stored nor a name in one of their directories, it looks at no file. It then misses a file of the
// package that became executable otherwise than by dpkg, so it is for a caller who allows programs.
func (c Cache) Programs(pkg string) (programs []string, installed bool, err error) {
	return host.cached(c, pkg, false)
}

// EveryProgram is Programs for a caller who forbids programs: it misses none. So it also looks at the directories
// of all files of the package, and at each file that was not executable.
func (c Cache) EveryProgram(pkg string) (programs []string, installed bool, err error) {
	return host.cached(c, pkg, true)
}

// cached returns the programs of a package, as [Cache.Programs] does, and with every as [Cache.EveryProgram] does.
func (db database) cached(c Cache, pkg string, every bool) (programs []string, installed bool, err error) {
	if c == "" || !IsName(pkg) {
		return db.programs(pkg)
	}
	stamp, young := db.stamp(pkg)
	file := filepath.Join(string(c), pkg)
	if every {
		file += "=every" // no name of a package has this sign
	}
	if vfs.IsPrivate(string(c)) {
		if programs := stored(file, stamp); programs != nil {
			return programs, true, nil
		}
	}
	began := time.Now()
	found, installed, err := db.find(pkg)
	if err != nil || !installed || young {
		return found.programs, installed, err
	}
	text, stable := found.text(stamp, began, every)
	if now, _ := db.stamp(pkg); stable && now == stamp {
		_ = c.store(file, text) // the next call reads dpkg's list again
	}
	return found.programs, installed, nil
}

// text returns the content of a cache's file for a package whose lists have this stamp: that of [Cache.Programs], or of
// [Cache.EveryProgram] with every. stable is false if a directory may have changed since the search began, or just
// before in a way that its times would not show.
func (f *found) text(stamp string, began time.Time, every bool) (text string, stable bool) {
	var b strings.Builder
	b.WriteString(version + stamp + "\n")
	dirs := map[string]bool{}
	for _, path := range f.programs {
		dirs[filepath.Dir(path)] = true
	}
	if every {
		dirs = f.dirs
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		stamp, changed := dirStamp(dir)
		if began.Sub(changed) < resolution {
			return "", false
		}
		b.WriteString(inDir + stamp + " " + dir + "\n")
	}
	for _, path := range f.programs {
		b.WriteString(isProgram + path + "\n")
	}
	for _, path := range f.plain {
		if every {
			b.WriteString(isPlain + path + "\n")
		}
	}
	return b.String(), true
}

// The beginnings of the lines in a cache's file: of the first line, which has the stamp of dpkg's lists, of one with the
// stamp of a directory and its path, and of those with the path of a program, or of a file that was not executable.
const (
	version   = "2 "
	inDir     = "d"
	isProgram = "x"
	isPlain   = "-"
)

// dirStamp returns a text that differs once a name in the directory dir has changed, or dir is another directory, and
// the time of the last change; the zero time if there is no directory.
func dirStamp(dir string) (stamp string, changed time.Time) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "-", time.Time{}
	}
	changed = time.Unix(st.Ctim.Unix())
	return fmt.Sprintf("%d.%d.%d.%d", st.Dev, st.Ino, st.Mtim.Nano(), changed.UnixNano()), changed
}

// stamp returns a text that differs once dpkg has changed its list of a package's files. young is set if dpkg has
// changed the list within the time settled.
func (db database) stamp(pkg string) (stamp string, young bool) {
	var b strings.Builder
	for _, name := range append(db.lists(pkg), "../arch", "../diversions", "../statoverride") {
		st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(string(db), "info", name))
		if err != nil {
			b.WriteString("- ")
			continue
		}
		fmt.Fprintf(&b, "%d.%d.%d.%d ", st.Ino, st.Size, st.MTime.Time().UnixNano(), st.CTime.Time().UnixNano())
		young = young || time.Since(st.CTime.Time()) < settled
	}
	return b.String(), young
}

// stored returns the programs in the file of a [Cache], or nil if the file does not have them for lists of dpkg with this
// stamp, or a directory has changed, or a file of the package has become executable.
func stored(file, stamp string) (programs []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if first != version+stamp {
		return nil
	}
	for line := range strings.Lines(rest) {
		kind, line := line[:1], strings.TrimSuffix(line[1:], "\n")
		switch kind {
		case inDir:
			was, dir, _ := strings.Cut(line, " ")
			if now, _ := dirStamp(dir); now != was {
				return nil
			}
		case isPlain:
			if info, err := os.Lstat(line); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 != 0 {
				return nil
			}
		case isProgram:
			programs = append(programs, line)
		}
	}
	return programs
}

// store stores the text of a package in the file of the cache.
func (c Cache) store(file, text string) error {
	if err := vfs.MakePrivate(string(c)); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(c), ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is returned
	}
	return err
}
