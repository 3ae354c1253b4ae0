package layer

import "github.com/snapfs/snapfs/backends/fusecow/layer/logfile"

// A log is compacted when it has at least minCompaction bytes and most of them record states that were changed
// again since: when it is compactionRatio times larger than a fresh log would be. This keeps the time to open a
// layer proportional to its state, not to its history.
const (
	minCompaction   = 1 << 20
	compactionRatio = 4
)

// compactLog rewrites the log of the top layer when due. If that fails, mostly for lack of space, the log stays
// as it is and compactLog tries again after it has grown. Cost: a look at each inode whenever the log has grown
// several times; for a rewrite, reading this log and those of the layers below. The caller holds logMu.
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

// compactedSize estimates, from above, the size of a fresh log of the top layer. The caller holds mu.
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

// digestLog returns the shortest list of records with the same effect as the log of the top
// layer d.
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
