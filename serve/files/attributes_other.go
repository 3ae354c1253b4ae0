//go:build !linux

package files

import "github.com/snapfs/snapfs/errs"

// Attributes is that of [Attributer].
func (*Root) Attributes(string, []string) ([]map[string]string, error) {
	return nil, errs.ErrNotSupported
}

// SetAttributes is that of [Attributer].
func (*Root) SetAttributes(string, string, map[string]string) error { return errs.ErrNotSupported }
