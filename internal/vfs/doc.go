// Package vfs handles files and directories in ways that package os cannot: by descriptor, by
// exact bytes of a name, with every attribute. Each function makes one system call where
// possible, and nothing is cached.
//
// Functions return descriptors as *os.File with close-on-exec set, and take them as int where
// AT_FDCWD is meaningful. Paths hold any bytes but NUL.
package vfs
