//go:build !linux

package files

import "github.com/snapfs/snapfs/errs"

// Attributes returns the extended attributes of files in the Root's directory, on Linux. Here it always
// returns an error.
func (*Root) Attributes(string, []string) ([]map[string]string, error) {
	return nil, errs.ErrNotSupported
}

// SetAttributes sets extended attributes of a file in the Root's directory, on Linux. Here it always returns
// an error.
func (*Root) SetAttributes(string, string, map[string]string) error { return errs.ErrNotSupported }
