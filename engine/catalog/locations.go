package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Location is a directory outside the state directory in which a backend, Driver, stores data: on the
// filesystem of a tree, since clones do not cross filesystems. The catalogue lists these directories.
type Location struct{ Driver, Path string }

// AddLocation adds p to the catalogue's list of directories with backend data, by which the data is found
// when no sandbox refers to it any more. A path too long for a file name is left out. data is the directory with the
// data itself, which [Catalog.Outside] returns from then on. Cost: two system calls if both are listed already.
func (c *Catalog) AddLocation(p Location, data string) error {
	if err := c.addOutside(data); err != nil {
		return err
	}
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

// DropLocations removes these locations from the catalogue's list of directories with backend data. The data
// itself stays. The error names the locations that could not be removed.
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

// Locations lists the directories outside the state directory in which backends store data, sorted.
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
