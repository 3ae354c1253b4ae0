package catalog

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/snapfs/snapfs/internal/packed"
	"github.com/snapfs/snapfs/internal/vfs"
)

// The file DIR/listing is a cache of all records, for lists of many sandboxes. Without it, or if it is damaged or of
// another version, a program reads the records and lists the same. It has, after cacheHead, for each record:
//
//	the sandbox's name
//	inode, change time (seconds, nanoseconds) and size of the file record.json
//	2 + the size of the sandbox, see SetUsage, or 0 if it is not known
//	the record, as package packed encodes it
//
// and at the end the CRC-32C (Castagnoli) of the layout of [Record] and of everything before. A program with another
// layout thus takes the file for a damaged one. Numbers are varints, texts have their length before them.
const (
	cacheFile = "listing"
	cacheHead = "snapfs listing 1\n"
)

// staleCache is the age at which an unfinished cache file is removed: the process that wrote it was killed.
const staleCache = time.Minute

// A cacheState counts the differences between a [Listing] and the file of the cache.
type cacheState struct {
	// changes counts the records and sizes of sandboxes that the file lacks, and the records in it that are out of date.
	changes int
}

// ReadCached does what [Catalog.ReadAll] does, with the records that have not changed since [Listing.SaveCache]
// last saved them. Lists for people use it. A command that removes what no record names uses ReadAll instead: a
// wrong cache would make it remove too much. Cost: about 3 µs for each saved record.
func (c *Catalog) ReadCached() *Listing { return c.readAll(nil, true) }

// compare counts in s how many records of the new listing l differ from those of old, the listing in the cache file.
// It does nothing if s is nil, as for a listing without a cache.
func (s *cacheState) compare(old, l *Listing) {
	if s == nil {
		return
	}
	same := 0
	for name, e := range l.entries {
		if was, ok := old.entries[name]; ok && was.ino == e.ino && was.ctime == e.ctime {
			same++
		}
	}
	s.changes = len(l.entries) - same + len(old.entries) - same
}

// unpack decodes the record e of the sandbox called name, if e comes from the cache and is not decoded yet. It
// reports whether the record can be used.
func (e *listedRecord) unpack(name string) bool {
	if e.Record != nil {
		return true
	}
	e.Record = new(Record)
	if packed.Decode(e.packed, e.Record) != nil || e.Format > Format {
		return false
	}
	e.Name = name
	return true
}

// Usage returns the bytes that the sandbox of r stores beyond its base, if [Listing.SetUsage] has stored them and
// the record has not changed since.
func (l *Listing) Usage(r *Record) (bytes int64, ok bool) {
	e := l.entries[r.Name]
	return e.usage, e.measured && l.cache != nil
}

// SetUsage stores the bytes that the sandbox of r stores beyond its base, or -1 for unknown, for later listings. The
// caller has measured them after it read the record, and while nothing ran in the sandbox: whatever runs in it later changes
// its record. SetUsage does nothing in a listing without a cache.
func (l *Listing) SetUsage(r *Record, bytes int64) {
	e, ok := l.entries[r.Name]
	if l.cache == nil || !ok || bytes < -1 {
		return
	}
	e.usage, e.measured = bytes, true
	l.entries[r.Name] = e
	l.cache.changes++
}

// SaveCache saves the listing l of [Catalog.ReadCached] for later ones, unless the saved one is nearly the same. A
// state directory that cannot be written keeps the old one, or none. Several processes may do this at once; one of
// their listings is saved. The caller has not changed the records of sandboxes that are [Ready].
func (c *Catalog) SaveCache(l *Listing) {
	if l.cache == nil || l.cache.changes <= len(l.entries)/32 {
		return
	}
	path := filepath.Join(c.dir, cacheFile)
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if st, serr := os.Lstat(tmp); serr == nil && time.Since(st.ModTime()) > staleCache {
			_ = os.Remove(tmp)
		}
		return
	}
	_, err = f.Write(l.encodeCache())
	if cerr := f.Close(); err != nil || cerr != nil || os.Rename(tmp, path) != nil {
		_ = os.Remove(tmp) // a full disk, for example
	}
}

// encodeCache returns the content of the cache file for the listing l.
func (l *Listing) encodeCache() []byte {
	b := []byte(cacheHead)
	for name, e := range l.entries {
		if e.State != Ready {
			continue
		}
		if e.packed == "" {
			e.packed = string(packed.Append(nil, e.Record))
		}
		b = packed.AppendString(b, name)
		b = binary.AppendUvarint(b, e.ino)
		b = binary.AppendVarint(b, e.ctime.Sec)
		b = binary.AppendUvarint(b, uint64(e.ctime.Nsec))
		b = binary.AppendVarint(b, e.size)
		usage := uint64(0)
		if e.measured {
			usage = uint64(e.usage + 2)
		}
		b = binary.AppendUvarint(b, usage)
		b = packed.AppendString(b, e.packed)
	}
	return binary.BigEndian.AppendUint32(b, cacheSum(b))
}

// readCache returns the listing in the file of the cache, in which no record is decoded yet. It is empty if there is
// no such file or it is damaged.
func (c *Catalog) readCache() *Listing {
	l := &Listing{}
	path := filepath.Join(c.dir, cacheFile)
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
		return l
	}
	data, err := vfs.ReadFile(path)
	n := len(data) - 4
	if err != nil || n < len(cacheHead) || string(data[:len(cacheHead)]) != cacheHead || binary.BigEndian.Uint32(data[n:]) != cacheSum(data[:n]) {
		return l
	}
	entries := make(map[string]listedRecord, n/512)
	for r := packed.NewReader(string(data[len(cacheHead):n])); !r.Done(); {
		name, e := r.String(), listedRecord{settled: true}
		e.ino = r.Uvarint()
		e.ctime = vfs.Timestamp{Sec: r.Varint(), Nsec: uint32(r.Uvarint())}
		e.size = r.Varint()
		if usage := r.Uvarint(); usage > 0 {
			e.usage, e.measured = int64(usage)-2, true
		}
		e.packed = r.String()
		if r.Bad() {
			return l
		}
		entries[name] = e
	}
	l.entries = entries
	return l
}

// cacheSum returns the checksum of the content data of the cache file, and of the layout of a [Record].
func cacheSum(data []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(recordLayout()), table), table, data)
}

// recordLayout returns the layout of a [Record], a text that differs if the fields do. Its error is left out: a test
// shows that package packed can encode every field.
var recordLayout = sync.OnceValue(func() string {
	text, _ := packed.Layout[Record]()
	return text
})
