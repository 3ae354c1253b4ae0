package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Location is a directory in which a backend stores data on a tree's own filesystem.
type Location struct{ Driver, Path string }

// AddLocation records a location, so that its data is found when no sandbox refers to it. Cost: one
// system call if it is recorded already.
func (c *Catalog) AddLocation(p Location) error {
	path := c.locationPath(p)
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

// DropLocations removes records of locations. The errors name those that remain.
func (c *Catalog) DropLocations(list []Location) error {
	var errs []error
	for _, p := range list {
		if err := os.Remove(c.locationPath(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fail("removing", c.locationPath(p), err))
		}
	}
	return errors.Join(errs...)
}

func (c *Catalog) locationPath(p Location) string {
	return filepath.Join(c.dir, places, p.Driver+":"+strings.ReplaceAll(strings.ReplaceAll(p.Path, "%", "%25"), "/", "%2f"))
}

// Locations lists the recorded locations, sorted.
func (c *Catalog) Locations() ([]Location, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, places))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fail("listing", c.dir, err)
	}
	var found []Location
	for _, e := range entries {
		driver, path, ok := strings.Cut(e.Name(), ":")
		if ok {
			found = append(found, Location{driver, strings.ReplaceAll(strings.ReplaceAll(path, "%2f", "/"), "%25", "%")})
		}
	}
	return found, nil
}
