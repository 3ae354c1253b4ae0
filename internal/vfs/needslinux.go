//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

// ErrNeedsLinux is what asks for a power of Linux gets elsewhere. It matches [errors.ErrUnsupported].
var ErrNeedsLinux = fmt.Errorf("needs Linux: %w", errors.ErrUnsupported)
