// Package files reads and writes the files of a sandbox, for a server whose clients name paths.
//
// A [Tree] has the operations. [Root] carries them out in one directory, which it holds open: no path leads
// out of that directory, by "..", a symbolic link or a magic link of /proc, and neither a FIFO nor a device
// is opened. [Session] is the Tree of a sandbox: it starts one process in the sandbox, which serves the
// sandbox's root directory with [Serve] over a socket. Therefore the operations have the rights, the limits
// and the view of the sandbox's own commands, and the server itself resolves no path that a sandbox can
// change.
package files
