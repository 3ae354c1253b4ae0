//go:build !linux

package files

import (
	"io"

	"github.com/snapfs/snapfs/errs"
)

// A Root is the Tree below one directory of this process's view. It is safe for concurrent use.
type Root struct{}

// Open returns errs.ErrNotSupported.
func Open(dir string) (*Root, error) {
	return nil, errs.New("opening", dir, errs.ErrNotSupported, "this is not Linux")
}

// Close closes the directory.
func (*Root) Close() error { return nil }

// Stat is that of [Tree].
func (*Root) Stat(string, bool) (Info, error) { return Info{}, errs.ErrNotSupported }

// List is that of [Tree].
func (*Root) List(string, ListOptions) ([]Info, bool, error) { return nil, false, errs.ErrNotSupported }

// Read is that of [Tree].
func (*Root) Read(string, int64) (io.ReadCloser, Info, error) {
	return nil, Info{}, errs.ErrNotSupported
}

// Write is that of [Tree].
func (*Root) Write(string, io.Reader, WriteOptions) (Info, error) {
	return Info{}, errs.ErrNotSupported
}

// MakeDir is that of [Tree].
func (*Root) MakeDir(string, bool) (Info, error) { return Info{}, errs.ErrNotSupported }

// Rename is that of [Tree].
func (*Root) Rename(string, string) error { return errs.ErrNotSupported }

// Remove is that of [Tree].
func (*Root) Remove(string, bool) error { return errs.ErrNotSupported }
