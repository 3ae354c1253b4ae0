// Package leak finds the secrets of a sandbox, and the placeholders that stand for them inside, in the files
// that the sandbox changed. A secret is a credential that the sandbox's network proxy adds to requests, so
// that no process inside ever has it.
//
// The proxy gives [Store] a print of each secret, a keyed digest that recognises the secret without
// containing it. [Check] searches changed files for them before a promotion. It finds exact bytes and the
// usual encodings of text, but nothing in compressed or encrypted data. The package must not know how changes
// are promoted.
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
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/network/placeholder"
)

// printsFile is the name of the file in a sandbox's directory with the prints (keyed digests) by which its
// secrets are recognised.
const printsFile = "secrets.json"

// maxFile is the largest file, in bytes, that is searched for secrets. The promotion of a larger one is
// refused, as nobody knows whether it contains one.
const maxFile = 4 << 30

// Store saves prints in the sandbox's directory dir. Prints are keyed digests by which a sandbox's secrets
// are recognised in files without storing the secrets.
func Store(dir string, prints []placeholder.Print) error {
	text, err := json.Marshal(prints)
	if err != nil {
		return err
	}
	return catalog.ReplaceFile(filepath.Join(dir, printsFile), text, false)
}

// load returns the prints, keyed digests by which a sandbox's secrets are recognised, from the sandbox's
// directory dir; none if the sandbox has never run.
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

// A Source returns the tree that has the new version of a changed path, and the path there.
type Source func(path string) (tree *os.File, at string)

// Check searches the changed files of a sandbox for its secrets (credentials) and the placeholders that stand
// for them, before a promotion: their content, names, link targets and extended attributes. It returns an
// errs.ErrDenied that names the first file with one, or nil. dir is the directory of the sandbox rec, from returns
// where each change has its new version, and at is the directory that gets the changes, for the error. A
// sandbox without secrets costs nothing, and others about 2 ns for each byte and secret.
func Check(rec *catalog.Record, dir string, from Source, at string, changes []diff.Change) error {
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
		if err := checkFile(rec, from, at, c.Path, prints); err != nil {
			return err
		}
	}
	return nil
}

// Finder returns a function that describes the first secret (credential) of the sandbox rec, or placeholder, in a text;
// the function returns "" if there is none. dir is the directory of the sandbox. Finder returns nil for a sandbox
// without secrets.
func Finder(rec *catalog.Record, dir string) (func(text []byte) string, error) {
	if len(rec.Policy.Secrets) == 0 {
		return nil, nil //nolint:nilnil // nothing is searched for
	}
	prints, err := load(dir)
	if err != nil {
		return nil, errs.With("reading the prints of the secrets", rec.Name, err)
	}
	return func(text []byte) string {
		if f := placeholder.SearchText(text, prints); f != nil {
			return describe(f)
		}
		return ""
	}, nil
}

// checkNames returns an ErrDenied if the name of a changed path, the target of a symbolic link or an extended attribute
// contains a secret that one of prints recognises, or a placeholder. at is the absolute path of the directory that gets
// the changes, for the error.
func checkNames(rec *catalog.Record, at string, c *diff.Change, prints []placeholder.Print) error {
	if f := placeholder.SearchText([]byte(c.Path+"\x00"+c.New.Target), prints); f != nil {
		return refuse(rec, filepath.Join(at, c.Path), f, "its name or target")
	}
	for name, value := range c.New.Xattrs {
		if f := placeholder.SearchText([]byte(name+"\x00"+value), prints); f != nil {
			return refuse(rec, filepath.Join(at, c.Path), f, "the extended attribute "+pathlist.Printable(name))
		}
	}
	return nil
}

func checkFile(rec *catalog.Record, from Source, at, path string, prints []placeholder.Print) error {
	tree, there := from(path)
	f, err := vfs.OpenBeneath(int(tree.Fd()), there, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
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
	return &errs.Error{
		Op: "promoting", Subject: rec.Name, Path: path, Kind: errs.ErrDenied, Err: errors.New(describe(f) + " is in " + where),
		Hints: []string{"snapfs shell " + rec.Name + "   # and remove it from " + errs.Quoted(path)},
	}
}

func describe(f *placeholder.Found) string {
	if f.Secret != "" {
		return "the secret " + f.Secret
	}
	return "a placeholder of a secret"
}
