//go:build !linux

package proc

import (
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
)

// SealedCopy returns a copy of a program in memory that nobody can change. A sandbox gets the
// program by descriptor, which must not lead back to the file itself, as a process in the
// sandbox might write to that (CVE-2019-5736). The caller closes it. Cost: a copy of the file,
// some milliseconds. Errors: those of opening the file, and of memfd_create(2). Linux only.
func SealedCopy(string) (*os.File, error) { return nil, vfs.ErrNeedsLinux }
