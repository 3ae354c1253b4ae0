//go:build !linux

package files

import (
	"io"

	"github.com/snapfs/snapfs/errs"
)

// A Root is the [Tree] of the files in one directory. It exists only on Linux.
type Root struct{}

// Open returns the Root of a directory, on Linux. Here it always returns errs.ErrNotSupported.
func Open(dir string) (*Root, error) {
	return nil, errs.New("opening", dir, errs.ErrNotSupported, "this is not Linux")
}

// Close does nothing, because no Root can be opened here.
func (*Root) Close() error { return nil }

// Stat describes a file, on Linux. Here it always returns an error.
func (*Root) Stat(string, bool) (Info, error) { return Info{}, errs.ErrNotSupported }

// List describes the entries of a directory, on Linux. Here it always returns an error.
func (*Root) List(string, ListOptions) ([]Info, bool, error) { return nil, false, errs.ErrNotSupported }

// Read opens a file for reading, on Linux. Here it always returns an error.
func (*Root) Read(string, int64) (io.ReadCloser, Info, error) {
	return nil, Info{}, errs.ErrNotSupported
}

// Write replaces a file, on Linux. Here it always returns an error.
func (*Root) Write(string, io.Reader, WriteOptions) (Info, error) {
	return Info{}, errs.ErrNotSupported
}

// MakeDir makes a directory, on Linux. Here it always returns an error.
func (*Root) MakeDir(string, bool) (Info, error) { return Info{}, errs.ErrNotSupported }

// Rename moves a file or directory, on Linux. Here it always returns an error.
func (*Root) Rename(string, string) error { return errs.ErrNotSupported }

// Remove removes a file or directory, on Linux. Here it always returns an error.
func (*Root) Remove(string, bool) error { return errs.ErrNotSupported }
