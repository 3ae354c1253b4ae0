//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

// ErrNeedsLinux is the error of functions that exist only on Linux, when they are called on another system.
// It matches [errors.ErrUnsupported].
var ErrNeedsLinux = fmt.Errorf("needs Linux: %w", errors.ErrUnsupported)
