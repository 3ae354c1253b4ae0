//go:build linux

package fusecow

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// writeNames returns an unnamed file that holds paths, each ended by a NUL, for the caller to close. With it
// the paths to hide from a fork's mounts are sent to the process that serves the fork, since a message might
// be too small for those of a machine with many users. The file is nil if there are no paths.
func writeNames(paths []string) (*os.File, error) {
	if len(paths) == 0 {
		return nil, nil //nolint:nilnil // nothing to send
	}
	fd, err := unix.MemfdCreate("names", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "names")
	if _, err := f.WriteString(strings.Join(paths, "\x00") + "\x00"); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readNames returns the paths to hide from a fork's mounts. They are in the first of files, which came with a
// request and which [writeNames] made.
func readNames(files []*os.File) ([]string, error) {
	if len(files) == 0 {
		return nil, errors.New("the message lacks the file with the names to hide")
	}
	text, err := io.ReadAll(io.NewSectionReader(files[0], 0, 1<<30))
	if err != nil {
		return nil, err
	}
	paths := strings.Split(string(text), "\x00")
	return paths[:len(paths)-1], nil
}
