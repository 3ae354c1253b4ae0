package layer

import (
	"errors"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Commit appends all changes that the log of the top layer lacks, in one frame, so that a crash never keeps
// the later of two changes alone. With sync it waits until the log is on stable storage; that is free if the
// log did not grow. Then it deletes the content of removed inodes, once a power cut cannot leave a log that
// refers to it. After an error the changes are still to be committed, or some content still exists.
func (f *FS) Commit(sync bool) error {
	if f.readOnly {
		return nil
	}
	f.logMu.Lock()
	defer f.logMu.Unlock()
	f.mu.Lock()
	d, s := f.layers[f.top()], f.topSlot()
	u := f.takeUnlogged()
	f.mu.Unlock()
	defer f.removing.Store(0)
	if len(u.records) > 0 {
		err := f.appendFreeing(d, s, u)
		f.pendingLog.Add(-u.pendingLog)
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.restoreUnlogged(u)
			return err
		}
		f.frames.Add(1)
		f.compactLog(d)
		f.chargeLog(d, s)
	}
	var err error
	switch frame := f.frames.Load(); {
	case sync:
		if err = d.Sync(); err == nil {
			f.durableFrame.Store(frame)
		}
	case len(u.garbage) > 0:
		err = vfs.SyncData(d.Log)
	}
	for err == nil && len(u.garbage) > 0 {
		if err = f.removeDead(d, s, u.garbage[0]); err == nil {
			u.garbage = u.garbage[1:]
		}
	}
	if len(u.garbage) > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.garbage = append(f.garbage, u.garbage...)
	}
	return err
}

// An unlogged is one batch of changes, which [FS.Commit] takes from the journal to write it to the log.
type unlogged struct {
	records    []byte
	dirty      map[*inode]struct{}
	names      map[nameKey]struct{}
	garbage    []deadContent
	originals  []*logfile.Original
	pendingLog int64
	// before is the logged state of the inodes before the batch, to restore it after an error.
	before []loggedState
}

type loggedState struct {
	n      *inode
	logged bool
	frame  int64
}

// takeUnlogged moves all changes that the log lacks from f to one batch, to be written. The caller holds mu.
func (f *FS) takeUnlogged() *unlogged {
	u := &unlogged{dirty: f.dirty, names: f.dirtyNames, originals: f.originals, pendingLog: f.pendingLog.Load()}
	u.records, u.before = f.encodeUnlogged()
	if len(u.records) == 0 && len(f.garbage) == 0 {
		return u
	}
	u.garbage = f.garbage
	f.dirty, f.dirtyNames, f.garbage, f.originals = map[*inode]struct{}{}, map[nameKey]struct{}{}, nil, nil
	for _, g := range u.garbage {
		f.removing.Add(g.charged)
	}
	return u
}

// restoreUnlogged puts the changes u back into the journal after writing them failed. The caller holds mu.
func (f *FS) restoreUnlogged(u *unlogged) {
	f.pendingLog.Add(u.pendingLog)
	for n := range u.dirty {
		f.dirty[n] = struct{}{}
	}
	for k := range u.names {
		f.dirtyNames[k] = struct{}{}
	}
	next := f.frames.Load() + 1
	for _, h := range u.before {
		h.n.logged = h.logged
		if h.n.frame == next {
			h.n.frame = h.frame
		}
	}
	f.garbage = append(f.garbage, u.garbage...)
	f.originals = append(f.originals, u.originals...)
}

// appendFreeing appends the changes u to the log of the layer d. On a full disk it first deletes content of
// removed inodes, no more than needed: without that, a full disk could not be emptied from inside. A process
// killed just then finds such a file again, empty.
func (f *FS) appendFreeing(d *stackedLayer, s *quota.Slot, u *unlogged) error {
	for {
		err := d.Append(u.records)
		if err == nil || len(u.garbage) == 0 || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		for freed := int64(0); freed < int64(len(u.records)) && len(u.garbage) > 0; u.garbage = u.garbage[1:] {
			if rerr := f.removeDead(d, s, u.garbage[0]); rerr != nil {
				return errors.Join(err, rerr)
			}
			freed += u.garbage[0].charged
		}
	}
}

func (f *FS) removeDead(d *stackedLayer, s *quota.Slot, g deadContent) error {
	err := d.RemoveContent(g.id)
	if err == nil {
		s.Bytes.Add(-g.charged)
		f.removing.Add(-g.charged)
	}
	return err
}

// isDurable reports whether the log on stable storage already says where the content of n is, so that
// fdatasync(2) has to write only that content.
func (f *FS) isDurable(n *inode) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return n.logged && n.frame != 0 && n.frame <= f.durableFrame.Load()
}

// encodeUnlogged encodes log records for all changed inodes and names, and returns the previous state of the
// inodes. Removed inodes come first, because their numbers may have been reused. The caller holds mu.
func (f *FS) encodeUnlogged() ([]byte, []loggedState) {
	var w, inodes logfile.Writer
	before := make([]loggedState, 0, len(f.dirty))
	for n := range f.dirty {
		before = append(before, loggedState{n, n.logged, n.frame})
		switch {
		case n.nlink > 0:
			r := n.record()
			inodes.Inode(&r)
			if n.sparse != nil {
				inodes.Sparse(n.id, &n.sparse.Sparse)
			}
			n.logged = true
			if n.frame == 0 {
				n.frame = f.frames.Load() + 1
			}
		case n.logged:
			w.Gone(n.id)
			n.logged = false
		}
	}
	w = append(w, inodes...)
	for _, o := range f.originals {
		w.Original(o)
	}
	for k := range f.dirtyNames {
		if k.dir.nlink > 0 && k.dir.changed {
			switch to, ok := k.dir.entries[k.name]; {
			case !ok:
				w.Unname(k.dir.id, k.name)
			case to == nil:
				w.Name(k.dir.id, k.name, 0) // a whiteout
			default:
				w.Name(k.dir.id, k.name, to.id)
			}
		}
	}
	return w, before
}

// markDirty queues the inode n, whose state has changed, for the next commit to the log. The caller holds mu.
func (f *FS) markDirty(n *inode) {
	f.chargeInode(n)
	f.dirty[n] = struct{}{}
}

// replay applies the log of the layer d to the inode table, and reports whether the layer was closed cleanly.
func (f *FS) replay(d *stackedLayer) (clean bool, err error) {
	refs := map[string]*lower.Ref{".": f.root.lower}
	err = d.Frames(func(records []byte) error {
		clean = len(records) == 1 && records[0] == logfile.KindClean
		for r := logfile.NewReader(records); r.More(); {
			if !f.replayRecord(r, refs) {
				return logfile.ErrDamaged
			}
		}
		return nil
	})
	return (clean || d.Size == int64(len(logfile.Magic))) && !d.UncleanMode && !d.Torn, err
}

// replayRecord applies the next record of a log to the inode table, and reports whether the record was valid.
// refs caches lower inodes by path.
func (f *FS) replayRecord(r *logfile.Reader, refs map[string]*lower.Ref) bool {
	switch kind := r.Kind(); kind {
	case logfile.KindClean, logfile.KindOriginal:
		r.Skip(kind)
	case logfile.KindInode:
		n := r.Inode()
		if r.Bad {
			return false
		}
		f.replayInode(&n, refs)
	case logfile.KindSparse:
		id, p := r.Sparse()
		return !r.Bad && f.replaySparse(id, p)
	case logfile.KindGone:
		if n := f.inodes[r.Gone()]; n != nil {
			f.unchargeContent(n)
			f.unchargeInode(n)
			f.evict(n)
		}
	case logfile.KindName:
		id, name, to := r.Name()
		dir, n := f.inodes[id], f.inodes[to]
		if r.Bad || dir == nil || n == nil && to != 0 {
			return false
		}
		dir.setName(name, n)
	case logfile.KindUnname:
		id, name := r.Unname()
		dir := f.inodes[id]
		if r.Bad || dir == nil {
			return false
		}
		delete(dir.entries, name)
	default:
		return false
	}
	return !r.Bad
}

// replayInode sets an inode to the state r that a log records. refs caches lower inodes by path.
func (f *FS) replayInode(r *logfile.Inode, refs map[string]*lower.Ref) {
	n := f.inodes[r.ID]
	if n == nil {
		n = &inode{id: r.ID, dirtyState: cleanState, layer: logfile.NoContent}
		n.ino = n.id
		if r.LowerPath != "" {
			n.lower = lower.RefAt(refs, r.LowerPath)
			if r.Mode&unix.S_IFMT != unix.S_IFDIR { // several files may have had this name in the lower, one after the other
				n.lower = &lower.Ref{Dir: n.lower.Dir, Name: n.lower.Name}
			}
			n.lower.Identity = f.lower.OmitRootDev(r.Lower)
		}
		f.insert(n)
	} else if r.LowerPath == "" {
		n.lower = nil // it was detached
	}
	f.unchargeContent(n.ownState())
	n.setRecord(r)
	n.changed, n.logged = true, true
	n.frame = f.frames.Load()
	n.preallocated = n.charged > f.alignUp(n.size)
	f.chargeContent(n)
	f.chargeInode(n)
	if n.id >= logfile.FirstOwnIno {
		f.nextIno = max(f.nextIno, n.id+1)
	}
}

// recover repairs the top layer after a crash. It takes the sizes of content from the files, not the log, and
// disposes of other files as [logfile.Orphans] says. A file whose content is missing becomes empty, or shows
// its extent sources again. careful keeps recover from deleting files that the log does not mention.
func (f *FS) recover(careful bool) error {
	d, top := f.layers[f.top()], f.top()
	others, err := d.Orphans(careful)
	if err != nil {
		return err
	}
	found := map[uint64]bool{}
	err = d.Contents(func(id uint64, st *vfs.Stat) error {
		n := f.inodes[id]
		if n == nil || !n.regular() || n.layer != top && n.layer != logfile.NoContent {
			if f.readOnly {
				return nil
			}
			return others.Dispose(id)
		}
		found[id] = true
		f.unchargeContent(n)
		n.layer, n.size, n.charged = top, st.Size, st.Blocks*512
		if n.sparse != nil && n.size < n.sparse.Shown() { // its size did not reach the disk
			if err := f.extendSparse(d, n); err != nil {
				return err
			}
		}
		n.preallocated = n.charged > f.alignUp(n.size)
		f.chargeContent(n)
		f.markDirty(n)
		return nil
	})
	if err != nil {
		return err
	}
	for id, n := range f.inodes {
		if n.regular() && n.layer == top && !found[id] {
			f.unchargeContent(n)
			if n.sparse != nil {
				n.revertToSource()
				f.markDirty(n)
				continue
			}
			n.layer, n.size, n.charged, n.preallocated = logfile.NoContent, 0, 0, false
			f.markDirty(n)
		}
	}
	return nil
}

// extendSparse restores the size of a sparse upper n (a file whose holes show lower files) after a crash: it
// extends the file with a hole, up to the end of its first extent source.
func (f *FS) extendSparse(d *stackedLayer, n *inode) error {
	n.size = n.sparse.Shown()
	if f.readOnly {
		return nil
	}
	num, err := d.OpenContent(n.id, unix.O_RDWR, false)
	if err != nil {
		return err
	}
	return errors.Join(unix.Ftruncate(num, n.size), unix.Close(num))
}
