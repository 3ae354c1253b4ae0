// Package vfs does with files and directories what package os cannot: by descriptor, by exact bytes of a
// name, with every attribute. One system call is one function, and nothing is cached.
//
// Descriptors are handed out as *os.File with close-on-exec set, and taken as int where AT_FDCWD is
// meaningful. Paths are any bytes but NUL.
package vfs
