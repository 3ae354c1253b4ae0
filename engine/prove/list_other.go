//go:build !linux

package prove

import (
	"errors"
	"fmt"
)

// List returns no probes: they test Linux sandboxes.
func List() []Probe { return nil }

// StartOf needs Linux.
func StartOf(int) (string, error) { return "", fmt.Errorf("needs Linux: %w", errors.ErrUnsupported) }
