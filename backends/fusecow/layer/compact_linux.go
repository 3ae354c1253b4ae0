package layer

import "github.com/snapfs/snapfs/backends/fusecow/layer/logfile"

// The log of a layer is rewritten when it has at least minCompaction bytes and is compactionRatio times
// larger than a fresh log of the same state, because most records are outdated. This keeps the time to open a
// layer proportional to its state, not to its history.
const (
	minCompaction   = 1 << 20
	compactionRatio = 4
)

// compactLog rewrites the log of the top layer d without outdated records, once the log is large enough (see
// minCompaction). If that fails, mostly for lack of space, the log stays as it is and is tried again after it
// has grown. Cost: a look at each inode whenever the log has grown several times; for a rewrite, reading this
// log and those of the layers below. The caller holds logMu.
func (f *FS) compactLog(d *stackedLayer) {
	if d.Size < max(d.nextCompaction, minCompaction) || d.UncleanMode {
		return
	}
	f.mu.RLock()
	fresh := f.compactedSize()
	f.mu.RUnlock()
	if d.nextCompaction = compactionRatio * fresh; d.Size < d.nextCompaction {
		return
	}
	d.nextCompaction = 2 * d.Size
	records, err := f.digestLog(d)
	if err != nil || int64(len(records)) > d.Size/2 {
		return
	}
	if d.Replace(records) == nil {
		d.nextCompaction = compactionRatio * d.Size
	}
}

// compactedSize returns an upper bound for the bytes that the log of the top layer would have after a rewrite
// by [FS.compactLog]. The caller holds mu.
func (f *FS) compactedSize() (size int64) {
	for _, n := range f.inodes {
		if n.recordedIn != f.top() {
			continue
		}
		size += n.recordSize()
		for name := range n.entries {
			size += int64(nameRecordSize + len(name))
		}
	}
	return size
}

// digestLog returns the shortest list of records with the same effect as the log of the top layer d, from
// which [FS.compactLog] writes a new log.
func (f *FS) digestLog(d *stackedLayer) (logfile.Writer, error) {
	g := logfile.NewDigest()
	if err := d.Records(g.Add); err != nil {
		return nil, err
	}
	needed := logfile.NewDigest()
	err := f.eachLayer(func(other *stackedLayer, _ logfile.Index) error {
		if other == d {
			return nil
		}
		return other.Records(func(kind byte, r *logfile.Reader) { g.Need(needed, kind, r) })
	})
	return g.Records(needed), err
}
