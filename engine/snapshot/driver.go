package snapshot

import (
	"context"
	"fmt"
	"strconv"
)

// A Driver opens a backend. The list of all drivers, best first, is
// backends/all; nothing registers itself.
type Driver struct {
	// Name is for people and for the catalogue, which keeps it to open the
	// same backend again. Nothing branches on it.
	Name string
	// Automatic: may be chosen without being asked for by name.
	Automatic bool
	// ForLimits: and then only for a [DiskLimit].
	ForLimits bool
	// Open answers with the backend that can hold tree, or an error that
	// matches errs.ErrNotSupported and says why this driver cannot. It leaves
	// nothing behind but its own directory, and costs under a millisecond.
	Open func(ctx context.Context, place Place) (Backend, error)
}

// A Place is where a backend may keep its data.
type Place struct {
	// Tree is what is to be captured.
	Tree Tree
	// Dir is the state directory's part for this driver: absolute, private to
	// the driver, made with its parents at the first write. A backend whose
	// data must lie elsewhere (on the tree's own filesystem) marks what it
	// makes there.
	Dir string
	// Held: only what is in the place already is asked for, so that a tree
	// that could not be captured now, or has gone, is no error.
	Held bool
}

// Bytes is a size in bytes.
type Bytes int64

func (b Bytes) String() string {
	const units = "KMGTPE"
	if b < 1024 {
		return strconv.FormatInt(int64(b), 10) + " B"
	}
	v, u := float64(b)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[u])
}

// ValidID reports whether s may be an [ID] or a [ForkID].
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > 64 || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
