package fdsock

import (
	"errors"
	"os"
	"syscall"
)

// HungUp reports whether err, of sending or receiving, means that the other end of the connection is closed.
func HungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// CloseAll closes files, such as descriptors that came with a message nobody wants, and ignores errors.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
