//go:build !linux

package kernel

import (
	"errors"
	"fmt"
)

// errLinux is what asks for a power of Linux gets elsewhere. It matches [errors.ErrUnsupported].
var errLinux = fmt.Errorf("needs Linux: %w", errors.ErrUnsupported)
