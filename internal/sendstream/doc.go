// Package sendstream reads, applies and writes btrfs send streams. A stream holds a tree, or the
// difference of two trees; the kernel writes it, and it can be applied on any filesystem.
//
//	magic "btrfs-stream\0", version (32 bits)
//	commands: length of the attributes (32), number (16), CRC-32C (32), attributes
//	an attribute: number (16), length (16), bytes
//
// All numbers are little-endian (fs/btrfs/send.h). A stream comes from another machine and is not
// trusted: see [Apply].
//
// # Reading the code
//
// Begin with [Apply] (apply.go), [Writer] (write.go) and command (stream.go). permissions.go lets an
// ordinary user apply a stream whose modes would forbid it.
//
// The package knows neither snapshots nor backends.
package sendstream
