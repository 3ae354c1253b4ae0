package snapshot

import (
	"context"
	"fmt"
	"strconv"
)

// A Driver describes a kind of backend and opens it. The engine chooses one for each tree from the list in
// package backends/all, best first. No driver adds itself to that list.
type Driver struct {
	// Name identifies the backend for users and in the catalogue, by which the same backend is
	// opened again. No code branches on it.
	Name string
	// Automatic is set if the driver may be chosen although the user did not name it.
	Automatic bool
	// ForLimits is set if an automatic choice considers the driver only when a [DiskLimit] is
	// wanted.
	ForLimits bool
	// Filesystem is the type of the filesystem that a tree must be on, or "" if Open decides. An
	// automatic choice passes over trees on others, without a call of Open.
	Filesystem string
	// Open returns the backend for the tree of place, or an error that matches errs.ErrNotSupported and
	// gives the reason. It creates nothing but the driver's own directory, and takes under a
	// millisecond.
	Open func(ctx context.Context, place Place) (Backend, error)
}

// A Place says, when a backend is opened, which tree it is for and where it may store its data.
type Place struct {
	// Tree is the tree to capture.
	Tree Tree
	// Dir is this driver's part of the state directory: an absolute path, private to the driver,
	// created with its parents at the first write. A backend whose data must lie elsewhere (on the
	// tree's own filesystem) puts its ownership mark on what it creates there.
	Dir string
	// Held is set if the caller needs only existing snapshots and forks. It is then no error
	// if the tree is gone or cannot be captured.
	Held bool
	// Server returns the command line of the program that serves FUSE mounts of forks, for the
	// drivers that need one. nil means the program snapfs-fuse beside this one. A function has no
	// form in JSON, in which the suite of package snapshottest hands a place to another process.
	Server func() ([]string, error) `json:"-"`
}

// Bytes is a size in bytes, such as of a file, a tree or a disk. String prints it with a unit.
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

// ValidID reports whether s has the form of an [ID] or a [ForkID]: 1 to 64 characters of [a-z0-9-] that do
// not begin with a hyphen.
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
