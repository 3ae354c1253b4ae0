package dpkg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Cache is a directory in which the programs of packages are stored, a file for each package, so that the next call
// need not look at all files of a package: Node.js has 5,000. "" stores nothing. No other user may write to the
// directory.
type Cache string

// settled is how long before a call dpkg must have changed a package's list last for its programs to be stored: while
// it installs the package, they may change without the list.
const settled = 10 * time.Minute

// Programs returns the programs of a package as the function [Programs] does. If dpkg has not changed its lists since
// the programs were stored, it only checks that each is still an executable regular file. It then misses a file of the
// package that became executable otherwise than by dpkg, so a caller who forbids programs needs the function Programs.
func (c Cache) Programs(pkg string) (programs []string, installed bool, err error) {
	return host.cached(c, pkg)
}

// cached returns the programs of a package, as [Cache.Programs] does.
func (db database) cached(c Cache, pkg string) (programs []string, installed bool, err error) {
	if c == "" || !IsName(pkg) {
		return db.programs(pkg)
	}
	stamp, young := db.stamp(pkg)
	file := filepath.Join(string(c), pkg)
	if vfs.IsPrivate(string(c)) {
		if programs := stored(file, stamp); programs != nil {
			return programs, true, nil
		}
	}
	programs, installed, err = db.programs(pkg)
	if err != nil || !installed || young {
		return programs, installed, err
	}
	if now, _ := db.stamp(pkg); now == stamp {
		_ = c.store(file, stamp, programs) // the next call reads dpkg's list again
	}
	return programs, installed, nil
}

// stamp returns a text that differs once dpkg has changed its list of a package's files. young is set if dpkg has
// changed the list within the time settled.
func (db database) stamp(pkg string) (stamp string, young bool) {
	var b strings.Builder
	for _, name := range append(db.lists(pkg), "../arch", "../diversions") {
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

// stored returns the programs in the file of a [Cache], or nil if the file has another stamp, or one of them is no
// longer a program.
func stored(file, stamp string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != stamp {
		return nil
	}
	for _, path := range lines[1:] {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return nil
		}
	}
	return lines[1:]
}

// store stores the programs of a package in the file of the cache.
func (c Cache) store(file, stamp string, programs []string) error {
	if err := vfs.MakePrivate(string(c)); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(c), ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(stamp + "\n" + strings.Join(append(programs[:len(programs):len(programs)], ""), "\n"))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is returned
	}
	return err
}
