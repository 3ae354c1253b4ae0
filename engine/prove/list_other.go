//go:build !linux

package prove

import (
	"errors"
	"fmt"
)

// List returns no probes, because all probes test sandboxes on Linux.
func List() []Probe { return nil }

// StartOf returns an error, because it needs Linux.
func StartOf(int) (string, error) { return "", fmt.Errorf("needs Linux: %w", errors.ErrUnsupported) }
