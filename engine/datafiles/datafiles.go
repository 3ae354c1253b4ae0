// Package datafiles finds the files of the real machine that the paths and patterns of [data] in a profile name, after
// symbolic links.
package datafiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Bounds of one list: of the paths that it names, of the files and directories through which [Find] looks for its
// patterns, and of the time that this takes.
const (
	MaxPaths   = 1000
	MaxEntries = 200_000
	maxTime    = 10 * time.Second
)

// Find returns the absolute paths that list names, the value of the key called key in [data]: a path as it is, whether
// or not it exists, and for a pattern of [pathlist.Match] each file and directory on the real machine that it matches,
// with the pattern's directory after its symbolic links. It returns nil for nil. It follows no link to a directory and
// does not look below a directory that matches. With skip it passes over directories that this user may not list.
//
// Cost: none for paths, a walk of its directory for each pattern. Errors: errs.ErrInvalid beyond the bounds, and for a
// directory that cannot be listed.
func Find(key string, list []string, skip bool) ([]string, error) {
	if list == nil {
		return nil, nil
	}
	f := finder{key: key, skip: skip, until: time.Now().Add(maxTime), found: make([]string, 0, len(list))}
	for _, pattern := range list {
		if !pathlist.IsPattern(pattern) {
			f.found = append(f.found, pathlist.Fixed(pattern))
			continue
		}
		if err := f.find(pattern); err != nil {
			return nil, err
		}
	}
	if len(f.found) > MaxPaths {
		return nil, f.refuse(list[0], fmt.Errorf("the list names %d paths, and at most %d can be held", len(f.found), MaxPaths))
	}
	return f.found, nil
}

// A finder finds the paths of one list.
type finder struct {
	key     string
	skip    bool
	until   time.Time
	found   []string
	entries int
}

// find adds the paths that pattern matches.
func (f *finder) find(pattern string) error {
	top := pathlist.Fixed(pattern)
	real, err := filepath.EvalSymlinks(top)
	if absent(err) || err == nil && !isDir(real) {
		return nil
	}
	if err != nil {
		return f.unlisted(top, err)
	}
	err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if f.entries++; f.entries > MaxEntries {
			return f.refuse(pattern, fmt.Errorf("more than %d files and directories are looked through for it", MaxEntries))
		}
		if f.entries%1024 == 0 && time.Now().After(f.until) {
			return f.refuse(pattern, fmt.Errorf("looking for what it matches took more than %v", maxTime))
		}
		switch {
		case absent(err): // removed meanwhile
			return nil
		case err != nil:
			return f.unlisted(path, err)
		case path == real || !pathlist.Match("/", pattern, top+path[len(real):]):
			return nil
		}
		if f.found = append(f.found, path); len(f.found) > MaxPaths {
			return f.refuse(pattern, fmt.Errorf("it is one of the patterns that match more than %d files and directories", MaxPaths))
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return err
}

// unlisted returns the error of a directory that cannot be listed because of err, or nil if it is passed over.
func (f *finder) unlisted(dir string, err error) error {
	if f.skip && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	var bad *fs.PathError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	return f.refuse(dir, err)
}

// refuse returns the error err for path. Because of it a sandbox whose profile has the list f.key in [data] does not
// start.
func (f *finder) refuse(path string, err error) error {
	return &errs.Error{
		Op: "finding the paths of data." + f.key, Path: path, Kind: errs.ErrInvalid, Err: err,
		Hints: []string{"name a directory in place of the pattern, or begin the pattern with a directory further below"},
	}
}

// absent reports whether err means that there is no such file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
