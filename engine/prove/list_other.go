//go:build !linux

package prove

import (
	"errors"
	"fmt"
)

// List is the version for systems without sandboxes, all but Linux. It returns no probes, since a probe tests
// a sandbox from inside.
func List() []Probe { return nil }

// StartOf, which returns a process's start time on Linux, is on other systems only a stub that returns
// errors.ErrUnsupported.
func StartOf(int) (string, error) { return "", fmt.Errorf("needs Linux: %w", errors.ErrUnsupported) }
