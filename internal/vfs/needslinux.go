//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

// ErrNeedsLinux is the error of a Linux function on another system. It matches
// [errors.ErrUnsupported].
var ErrNeedsLinux = fmt.Errorf("needs Linux: %w", errors.ErrUnsupported)
