// Package copier copies files between a sandbox and the real tree, as docker cp does. The side in the sandbox is
// the program tar, which runs there: so it sees the sandbox's own /tmp and mounts, and has no more rights than any
// command. The real side writes below one directory that it holds open, whatever the archive says.
package copier
