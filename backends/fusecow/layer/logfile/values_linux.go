package logfile

import (
	"math/rand/v2"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Time is a file time in seconds since 1970 and nanoseconds. The seconds are stored in two halves, so that
// a Time takes 12 bytes in the many inodes in memory.
type Time struct {
	high int32
	low  uint32
	Nsec uint32
}

// At returns the [Time] of a file that is sec seconds and nsec nanoseconds after the beginning of 1970.
func At(sec int64, nsec uint32) Time { return Time{int32(sec >> 32), uint32(sec), nsec} }

// Now returns the present time as a [Time], to be set as a file's time.
func Now() Time {
	t := time.Now()
	return At(t.Unix(), uint32(t.Nanosecond()))
}

// Sec returns the whole seconds of the file time t since 1970.
func (t Time) Sec() int64 { return int64(t.high)<<32 | int64(t.low) }

// An Index says where the content of a regular file is: in the layer of that index, counted from the oldest,
// or one of the constants below.
type Index int32

// Values of an [Index], which says where the content of a file is, for content that is in no layer.
const (
	InLower   Index = -1 // in the lower
	NoContent Index = -2 // no content: all zeros
)

// FirstOwnIno is the smallest number of an inode that was created in a layer. Smaller numbers belong to
// inodes of the lower.
const FirstOwnIno = 1 << 61

// RandomIno returns a number for the first inode that a server creates. Drawing it at random from
// 2^60 keeps two filesystems that start from the same layers from using the same numbers, so that
// a number means one inode in both.
func RandomIno() uint64 { return FirstOwnIno + rand.Uint64N(1<<60) }

// An Identity distinguishes a lower inode from a later one with the same name or number: by device and birth
// time as well.
type Identity struct {
	Ino  uint64
	Dev  uint32 // 32 bits, as in Linux; 0 means the device of the lower's root
	Born Time
}

// FileIdentity returns the identity of a layer's content file. It omits the device number, which may change
// from one mount to the next.
func FileIdentity(st *vfs.Stat) Identity {
	return Identity{Ino: st.Ino, Born: At(st.BTime.Sec, st.BTime.Nsec)}
}

// An Inode is the state of an inode as the log of a layer records it: its attributes, and where its content
// is.
type Inode struct {
	ID                          uint64
	Mode, UID, GID, Nlink, Rdev uint32
	Size                        int64
	// Blocks is the allocated size of the content in blocks of 512 bytes, in its layer or in
	// the lower.
	Blocks              int64
	Layer               Index
	Atime, Mtime, Ctime Time
	Target              string // of a symbolic link
	Xattrs              map[string]string
	// LowerPath and Lower are the path in the lower, and the identity, of an inode of the lower; "" for others.
	LowerPath string
	Lower     Identity
}

// A Sparse lists the files that show through the holes of an inode's content, where nothing was written. The
// inode is then a sparse upper.
type Sparse struct {
	// Own identifies the upper file itself. A copy of it, as from a backup, may have zeros instead of holes,
	// which would hide the sources.
	Own     Identity
	Sources []Source // uppermost first
}

// A Source is an extent source of a sparse upper: a file of a lower layer, or of the lower, that is visible
// through the holes above it up to offset Until.
type Source struct {
	Layer Index
	Until int64
	// File is the identity of the source file, if it is itself a sparse upper.
	File Identity
	// Size, Mtime and Blocks are those of the file when it became a source; a later difference
	// means that it has changed.
	Size   int64
	Mtime  Time
	Blocks int64 // of 512 bytes
}
