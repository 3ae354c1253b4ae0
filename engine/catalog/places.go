package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Place is a directory in which a backend stores data on a tree's own filesystem.
type Place struct{ Driver, Path string }

// AddPlace records a place, so that its data is found when no sandbox refers to it. Cost: one
// system call if it is recorded already.
func (c *Catalog) AddPlace(p Place) error {
	path := c.place(p)
	if len(filepath.Base(path)) > 255 { // a tree that deep is only found through its sandboxes
		return nil
	}
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(path, 0o700); err == nil {
			return nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fail("making", path, err)
	}
	return nil
}

// DropPlaces removes records of places. The errors name those that remain.
func (c *Catalog) DropPlaces(list []Place) error {
	var errs []error
	for _, p := range list {
		if err := os.Remove(c.place(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fail("removing", c.place(p), err))
		}
	}
	return errors.Join(errs...)
}

func (c *Catalog) place(p Place) string {
	return filepath.Join(c.dir, places, p.Driver+":"+strings.ReplaceAll(strings.ReplaceAll(p.Path, "%", "%25"), "/", "%2f"))
}

// Places lists the recorded places, sorted.
func (c *Catalog) Places() ([]Place, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, places))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fail("listing", c.dir, err)
	}
	var found []Place
	for _, e := range entries {
		driver, path, ok := strings.Cut(e.Name(), ":")
		if ok {
			found = append(found, Place{driver, strings.ReplaceAll(strings.ReplaceAll(path, "%2f", "/"), "%25", "%")})
		}
	}
	return found, nil
}
