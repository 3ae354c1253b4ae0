//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

// ErrNeedsLinux is what Linux-only functions return on another system. It matches
// [errors.ErrUnsupported].
var ErrNeedsLinux = fmt.Errorf("needs Linux: %w", errors.ErrUnsupported)
