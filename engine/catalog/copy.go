package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A record on disk begins with a line that has a checksum of the rest, so that a flipped byte is noticed that leaves
// the JSON text valid. A record without that line, of an older snapfs or edited by a person, is read without the check.
//
// Beside the record of a sandbox that is not ephemeral lies a copy of its file, recordCopy. It is written after the
// record and never synced, so that it costs little. [Catalog.Restore] makes the record again from it.
const recordCopy = "record.copy"

const (
	sumStart = "{\n  \"sum\": \""
	sumEnd   = "\",\n"
	sumSize  = len(sumStart) + 8 + len(sumEnd)
)

// withSum returns text, the JSON text of a record, with a first line that has the checksum of the others.
func withSum(text []byte) []byte {
	rest := text[len("{\n"):]
	out := make([]byte, 0, len(text)+sumSize)
	out = fmt.Appendf(out, "%s%08x%s", sumStart, crc32.ChecksumIEEE(rest), sumEnd)
	return append(out, rest...)
}

// errSum is the cause of the error for a record whose content is not what was written.
var errSum = errors.New("its checksum does not match its content")

// withoutSum returns the JSON text of a record that withSum has returned, in the memory of data, or data itself if it
// has no checksum. The error is errSum if the checksum is another one.
func withoutSum(data []byte) ([]byte, error) {
	if len(data) < sumSize || !bytes.HasPrefix(data, []byte(sumStart)) || string(data[sumSize-len(sumEnd):sumSize]) != sumEnd {
		return data, nil
	}
	rest := data[sumSize:]
	if string(data[len(sumStart):len(sumStart)+8]) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(rest)) {
		return nil, errSum
	}
	text := data[sumSize-len("{\n"):]
	text[0] = '{' // in place of the comma behind the checksum
	return text, nil
}

// writeCopy writes the copy of the record data in the directory dir of a sandbox. If that fails, there is no copy.
func writeCopy(dir string, data []byte) {
	path := filepath.Join(dir, recordCopy)
	if write(path, data, visible) != nil {
		_ = os.Remove(path) // an older copy would restore what has changed since
	}
}

// readCopy returns the copy of the record in the directory dir of a sandbox, with Next increased, see lostNumbers. It
// returns false if there is none, if it is damaged, or if it has no checksum.
func readCopy(dir string) (*Record, bool) {
	data, _, err := vfs.ReadSmallAt(unix.AT_FDCWD, filepath.Join(dir, recordCopy), unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil || !bytes.HasPrefix(data, []byte(sumStart)) {
		return nil, false
	}
	r, err := decodeText(data)
	if err != nil || r.Format > Format {
		return nil, false
	}
	r.Next += lostNumbers + orderedSaves*len(r.Trees)
	return r, true
}

// lostNumbers is how many numbers of snapshots and forks a restored record counts as used beyond its own, and
// beyond those that [Locked.SaveReservingOrdered] may have reserved. The lost record may have been newer by one change,
// which takes fewer.
const lostNumbers = 100

// Restore makes the record of the sandbox called name again from its copy if the record is damaged. The damaged file
// stays in the sandbox's directory, as record.damaged. damage is the error of reading it, nil if the record is sound.
//
// It waits up to ten seconds (dropTimeout) for the sandbox's lock. Errors: ErrNotFound, ErrBusy, ErrInterrupted;
// ErrCorrupt if there is no sound copy either. After any of them the sandbox is unchanged.
func (c *Catalog) Restore(ctx context.Context, name string) (damage, err error) {
	if _, err := c.Get(name); !errors.Is(err, errs.ErrCorrupt) {
		return nil, err
	}
	dir, err := c.lockDamaged(ctx, name, "restoring")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	path := c.Path(name)
	_, damage = c.Get(name)
	switch {
	case damage == nil && sameFile(dir, path): // another command has restored it
		return nil, nil
	case !sameFile(dir, path):
		return nil, errs.New("restoring", name, errs.ErrBusy, "another snapfs command has removed or made the sandbox meanwhile")
	case !errors.Is(damage, errs.ErrCorrupt):
		return nil, damage
	}
	r, ok := readCopy(path)
	if !ok {
		return nil, damage
	}
	r.Name = name
	file := filepath.Join(path, record)
	_ = os.Remove(filepath.Join(path, "record.damaged")) // of an earlier repair
	if err := os.Link(file, filepath.Join(path, "record.damaged")); err != nil {
		return nil, fail("restoring", file, err)
	}
	return damage, c.write(r, durable)
}
