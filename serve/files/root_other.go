//go:build !linux

package files

import (
	"io"

	"github.com/snapfs/snapfs/errs"
)

// A Root gives access to the files in one directory for a client, on Linux. On this system it is a stub,
// which [Open] never returns.
type Root struct{}

// Open returns a Root, which gives access to the files in a directory, on Linux. Here it always returns
// errs.ErrNotSupported.
func Open(dir string) (*Root, error) {
	return nil, errs.New("opening", dir, errs.ErrNotSupported, "this is not Linux")
}

// Close closes the root directory, on Linux. Here it does nothing, because no Root can be opened.
func (*Root) Close() error { return nil }

// Stat describes a file in the root directory, on Linux. Here it always returns an error.
func (*Root) Stat(string, bool) (Info, error) { return Info{}, errs.ErrNotSupported }

// List describes the entries of a directory inside the root directory, on Linux. Here it always returns an
// error.
func (*Root) List(string, ListOptions) ([]Info, bool, error) { return nil, false, errs.ErrNotSupported }

// Read opens a file in the root directory for reading, on Linux. Here it always returns an error.
func (*Root) Read(string, int64) (io.ReadCloser, Info, error) {
	return nil, Info{}, errs.ErrNotSupported
}

// Write makes or replaces a file in the root directory, on Linux. Here it always returns an error.
func (*Root) Write(string, io.Reader, WriteOptions) (Info, error) {
	return Info{}, errs.ErrNotSupported
}

// MakeDir makes a directory in the root directory, on Linux. Here it always returns an error.
func (*Root) MakeDir(string, bool) (Info, error) { return Info{}, errs.ErrNotSupported }

// Rename moves a file or directory in the root directory, on Linux. Here it always returns an error.
func (*Root) Rename(string, string) error { return errs.ErrNotSupported }

// Remove removes a file or directory in the root directory, on Linux. Here it always returns an error.
func (*Root) Remove(string, bool) error { return errs.ErrNotSupported }
