// Package copier copies files between a sandbox and the real tree, as docker cp does. Inside the sandbox, the
// program tar reads or writes the files. So it sees the sandbox's own /tmp and mounts, and has no more rights
// than any command. On the host, this process writes only below one directory that it holds open, whatever
// the archive says.
package copier
