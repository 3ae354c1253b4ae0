//go:build linux

// Package fusecow keeps snapshots and forks with a filesystem of its own, package layer. It only reads the real
// tree, and stores the changes of a fork in a layer above it. It needs /dev/fuse and the permission to mount,
// and has no requirements on the filesystem with its data. Captures are live: files that no layer has changed
// are read from the real tree as it is now. With a [Freezer] they are read from a frozen state.
//
// Read record, backend and [Serve] first. The package knows the layout of its directory, not the format of a
// layer.
//
// # Layout
//
//	lock                shared while naming layers, exclusive while clearing them
//	snapshots/<id>      a text file: the tree, the time, and the layers
//	forks/<id>          a text file: the same; the last layer is the fork's own
//	layers/<layer>/     a layer; its log marks the directory as ours
//	layers/<layer>/ask  the socket of the process that has it open for writing
//	layers/<layer>/instead     in a merged layer until all records name it: the replaced layers
//	layers/<layer>/superseded  marks a replaced layer, which goes soon if no record names it
//	layers/<layer>/parts       in a layer that Seal merged to shorten a fork: the layers it was merged from
//	quotas/<name>       usage and limit of some layers: a [quota.Quota]
//	states/<number>     a text file: the name of a state of a [Freezer]
//	tmp/                records and layers being created
//	trash/              deleted entries
//
// A record is renamed into place when it is complete. A layer that a snapshot names is never written again, so
// sealing takes a few small files: the fork gets a new layer, then the snapshot is created, then it becomes the
// fork's base. The state after each step is valid.
//
// # Servers
//
// Each served tree has a server process, see [Serve], which the first process that wants to mount the tree
// starts and which ends with the last mount. The server of a writable fork holds its layer open, locked with
// flock(2), and listens on a socket in it. Other processes get further mounts of the same filesystem from
// there. Sealing a fork in use makes its server continue on the next layer. A fork that no process has open is
// read through a server of its own.
package fusecow
