package hostfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
	"golang.org/x/sys/unix"
)

// A policy hides a path or makes it read-only, and a file may have several paths (hard links). So the start of a
// sandbox searches the workspace for other names of such files, and hides these names or makes them read-only, too. A
// command cannot add such a name later: link(2) does not cross a mount.

// Bounds of the search for other names of hidden and read-only files: the entries read in a directory outside the
// workspace, and the names found, each of which costs a mount.
const (
	maxNamesRead  = 100_000
	maxOtherNames = 200
)

type fileID struct{ dev, ino uint64 }

// otherNames finds the other names (hard links) in a workspace of files that a policy hides or makes read-only.
type otherNames struct {
	ctx       context.Context
	workspace string
	host      *lookupCache
	at        func(string) string // returns where the host reads a path of the sandbox
	// paths are the hidden or read-only paths of the policy, and shown those that it exposes. files maps each file with
	// several names at or below paths to one of them.
	paths []string
	shown []string
	files map[fileID]string
	notes []string
}

// addOtherNames adds to s the names in the workspace of rec that are hard links of its hidden and read-only files. It
// searches a hidden directory for files with several names only if the policy names that directory. host looks up paths
// of the host, and at returns where the host reads a path of the sandbox. notes are sentences for the user. Cost: an
// lstat of each path, a walk of the directories among them, and of the workspace if a file in them has several names.
// Errors: errs.ErrInvalid if there are too many names; errs.ErrInterrupted.
func addOtherNames(ctx context.Context, s *isolate.Spec, rec *catalog.Record, host *lookupCache, at func(string) string) (notes []string, err error) {
	for _, list := range []struct {
		paths *[]string
		whole []string // the paths whose directories are searched, too
		shown []string
		what  string
	}{{&s.Hide, host.followed(slices.Clone(rec.Policy.Hide)), exposed(rec.Policy.Expose), "hidden"}, {&s.ReadOnly, s.ReadOnly, nil, "read-only"}} {
		o := otherNames{ctx: ctx, workspace: rec.Workspace, host: host, at: at, paths: *list.paths, shown: list.shown, files: map[fileID]string{}}
		for _, p := range *list.paths {
			if err := o.collect(p, slices.Contains(list.whole, p)); err != nil {
				return nil, err
			}
		}
		found, err := o.find(list.what)
		if err != nil {
			return nil, err
		}
		*list.paths = append(slices.Clip(*list.paths), found...)
		notes = append(notes, o.notes...)
	}
	return notes, nil
}

// collect adds the file at the path p of the policy to o.files if it has several names and, if whole is set, those of
// the files below p that have.
func (o *otherNames) collect(p string, whole bool) error {
	st, err := o.host.lstat(o.at(p))
	switch {
	case err != nil:
		return nil //nolint:nilerr // it does not exist, or this user may not see it
	case !st.IsDir():
		o.add(p, &st)
		return nil
	case !whole:
		return nil
	}
	read, inside := 0, Within(p, o.workspace)
	return o.walk(p, func(path string, dir int, name string, _ uint64) error {
		if read++; read > maxNamesRead && !inside {
			o.notes = append(o.notes, fmt.Sprintf("%s has more than %d entries: other names of its files (hard links) in the workspace are not searched for", pathlist.Printable(p), maxNamesRead))
			return fs.SkipAll
		}
		if st, err := vfs.Lstat(dir, name); err == nil {
			o.add(path, &st)
		}
		return nil
	})
}

func (o *otherNames) add(path string, st *vfs.Stat) {
	if st.Nlink > 1 && !st.IsDir() {
		o.files[fileID{st.Dev, st.Ino}] = path
	}
}

// find returns the names of the collected files in the workspace that are not at or below one of o.paths or o.shown.
// what, for an error, is what the policy makes of the files: "hidden" or "read-only".
func (o *otherNames) find(what string) (found []string, err error) {
	if len(o.files) == 0 {
		return nil, nil
	}
	numbers := map[uint64]bool{}
	for id := range o.files {
		numbers[id.ino] = true
	}
	err = o.walk(o.workspace, func(path string, dir int, name string, ino uint64) error {
		within := func(p string) bool { return Within(path, p) }
		if !numbers[ino] || slices.ContainsFunc(o.paths, within) || slices.ContainsFunc(o.shown, within) {
			return nil
		}
		st, err := vfs.Lstat(dir, name)
		of := o.files[fileID{st.Dev, st.Ino}]
		if err != nil || of == "" {
			return nil //nolint:nilerr // gone, or another file of this number
		}
		if found = append(found, path); len(found) > maxOtherNames {
			return &errs.Error{
				Op: "starting", Path: path, Kind: errs.ErrInvalid,
				Err:   fmt.Errorf("it is one file with %s (hard links), which is %s, and more than %d files of the workspace are like it", pathlist.Printable(of), what, maxOtherNames),
				Hints: []string{"cp -a --remove-destination " + errs.Quoted(path) + " FILE   # or name the directory of the other files in the profile, too"},
			}
		}
		return nil
	})
	return found, err
}

// walk calls f for each entry below the directory top that is no directory: with its path, the open directory dir that
// has it, its name there, and its inode number. It follows no symbolic link, and ignores directories that this user
// cannot read. f may return fs.SkipAll.
func (o *otherNames) walk(top string, f func(path string, dir int, name string, ino uint64) error) error {
	for todo := []string{top}; len(todo) > 0; {
		if err := o.ctx.Err(); err != nil {
			return errs.With("starting", top, err)
		}
		in := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		dir, err := os.OpenFile(o.at(in), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		err = vfs.EachEntry(int(dir.Fd()), func(entry []byte, ino uint64, typ uint8) error {
			path := filepath.Join(in, string(entry))
			if typ == unix.DT_DIR {
				todo = append(todo, path)
				return nil
			}
			return f(path, int(dir.Fd()), string(entry), ino)
		})
		dir.Close()
		if errors.Is(err, fs.SkipAll) {
			return nil
		}
		var known *errs.Error
		if errors.As(err, &known) {
			return err
		}
	}
	return nil
}
