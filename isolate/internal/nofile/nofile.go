// Package nofile remembers how many open files this program was allowed before
// package os raised the limit to the most there is, so that what a program runs
// gets what it was given itself. Package syscall knows it too, but hands it on
// only to what it starts itself.
//
// It must be initialized before package os: packages whose imports are ready are
// initialized in the order of their import paths (go.dev/ref/spec, "Program
// initialization"), and this one needs nothing but syscall.
package nofile

import "syscall"

// The one system call at start-up of this project: later is too late. 0.2 µs.
var limit, err = get()

func get() (l syscall.Rlimit, err error) {
	err = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return l, err
}

// Limit is RLIMIT_NOFILE as this program was given it.
func Limit() (syscall.Rlimit, error) { return limit, err }
