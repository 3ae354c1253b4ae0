// Package leak finds the secrets of a sandbox, and their placeholders, in the files that it changed.
//
// The proxy of a sandbox gives the prints of its secrets to [Store]: they recognise a secret without containing it.
// [Check] searches changed files for them before a promotion. It finds exact bytes and the usual encodings of text,
// not what is compressed or encrypted. The package must not know how changes are promoted.
package leak

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/network/placeholder"
)

// printsFile is the name of the file with the prints, in a sandbox's directory.
const printsFile = "secrets.json"

// maxFile bounds the size of a file that is searched, in bytes. A larger one is refused, as nobody knows what is in it.
const maxFile = 4 << 30

// Store saves the prints of the secrets of a sandbox, in its directory dir.
func Store(dir string, prints []placeholder.Print) error {
	text, err := json.Marshal(prints)
	if err != nil {
		return err
	}
	return catalog.ReplaceFile(filepath.Join(dir, printsFile), text, false)
}

// load returns the prints in a sandbox's directory, or none if it has never run.
func load(dir string) (prints []placeholder.Print, err error) {
	text, err := os.ReadFile(filepath.Join(dir, printsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return prints, json.Unmarshal(text, &prints)
}

// Check returns an errs.ErrDenied that names the first changed file with a secret or a placeholder, or nil. dir is the
// directory of the sandbox rec, and tree the changed tree; at is its path for the error. A sandbox without secrets
// costs nothing, and others about 2 ns a byte and secret.
func Check(rec *catalog.Record, dir string, tree *os.File, at string, changes []diff.Change) error {
	if len(rec.Policy.Secrets) == 0 {
		return nil
	}
	prints, err := load(dir)
	if err != nil {
		return errs.With("reading the prints of the secrets", rec.Name, err)
	}
	for i := range changes {
		c := &changes[i]
		if c.New == nil || c.Kind == diff.Deleted {
			continue
		}
		if err := checkNames(rec, at, c, prints); err != nil {
			return err
		}
		if err := checkFile(rec, tree, at, c.Path, prints); err != nil {
			return err
		}
	}
	return nil
}

// checkNames searches the name of a changed path, and the target of a symbolic link.
func checkNames(rec *catalog.Record, at string, c *diff.Change, prints []placeholder.Print) error {
	if f := placeholder.SearchText([]byte(c.Path+"\x00"+c.New.Target), prints); f != nil {
		return refuse(rec, filepath.Join(at, c.Path), f, "its name or target")
	}
	return nil
}

func checkFile(rec *catalog.Record, tree *os.File, at, path string, prints []placeholder.Print) error {
	f, err := vfs.OpenBeneath(int(tree.Fd()), path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return nil // a link, a socket, or a path that the merge has from elsewhere
	}
	if err != nil {
		return errs.With("searching for secrets", filepath.Join(at, path), err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	found, err := placeholder.Search(f, prints, maxFile)
	if err != nil {
		return errs.With("searching for secrets", filepath.Join(at, path), err)
	}
	if found != nil {
		return refuse(rec, filepath.Join(at, path), found, fmt.Sprintf("the file, at byte %d", found.Offset))
	}
	return nil
}

func refuse(rec *catalog.Record, path string, f *placeholder.Found, where string) error {
	what := "a placeholder of a secret"
	if f.Secret != "" {
		what = "the secret " + f.Secret
	}
	return &errs.Error{
		Op: "promoting", Subject: rec.Name, Path: path, Kind: errs.ErrDenied, Err: errors.New(what + " is in " + where),
		Hints: []string{"snapfs shell " + rec.Name + "   # and remove it from " + errs.Quoted(path)},
	}
}
