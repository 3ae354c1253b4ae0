// Package plain stores snapshots and forks as ordinary copies of files: slow, unprivileged, and
// obviously correct. It is the reference for tests of the other backends, and the last resort where
// none of them works. It is never chosen automatically.
//
// # Layout
//
//	snapshots/<id>/{mark,tree}        a snapshot; the mark has its tree and time
//	forks/<id>/{mark,tree}            a fork; the mark has its base
//	snapshots|forks/<id>.part/        an incomplete snapshot or fork
//	trash/                            removed entries, and new ones without a name
//
// Every entry is made in the trash with its mark inside, and then renamed to <id>.part, from there
// to <id> when it is complete, and back into the trash when it is removed. So a killed process
// never leaves an entry without a mark, an incomplete entry under its final name, or remains that
// nobody deletes.
//
// # Reading the code
//
// Begin with backend (verbs.go), mark (mark.go), the description of an entry, and copier (copy.go), which
// copies a tree that may change meanwhile.
//
// The package knows neither the engine nor another backend, and runs on every platform.
package plain
