//go:build linux

// Package trial holds the filesystem of this backend to what others ask of one: a
// model of files in memory beside a plain directory, under random operations; a
// POSIX suite; and processes that are killed at any moment. It has only tests.
package trial
