//go:build linux

// Package trial tests the filesystem of fusecow from outside: random operations on it, on a model in memory and
// on a plain directory; a POSIX suite; and servers that are killed at any moment. It has only tests.
package trial
