// Package hostview shows a directory of a running container at a path of the host, for programs that run outside
// and must read and write the container's files: an agent's own editor beside its commands.
//
// A process serves the view over FUSE (package viewserver, program snapfs-fuse), because the container's files
// belong to ids of its own, which an overlay cannot map back. It holds the container's directory open, and one end
// of a pipe whose other end a process of the container reads: while the view is mounted the container lives, and
// with the view's process its part ends. Read [Start] first, then [Conn].
//
// Programs of the host trust what they find in a directory of their user. So nothing in a view can be executed
// (noexec), no symbolic link leads out, and package gitguard decides what the host reads of git's configuration.
//
// The package knows neither sandboxes nor snapshots.
package hostview
