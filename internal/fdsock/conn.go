package fdsock

import (
	"errors"
	"os"
	"syscall"
)

// HungUp: nobody listens at the other end any more.
func HungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
