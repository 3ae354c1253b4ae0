package baseline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// Record stores the originals of all files that the sandbox has changed on its live bases (bases that are the
// real tree itself, which may change), if the real tree still has them. Only commands that read the sandbox
// anyway call it, so that no command's start is delayed. It reports a failure as a notice: a missing original
// costs at most a conflict later.
//
// It returns the list of changed paths for each completely listed tree, which stays valid as long as nothing
// runs in the sandbox. Cost: listing the sandbox's layers; for each new path a statx of the real one, and a
// copy of a small text.
func (bl *Recorder) Record(ctx context.Context, rec *catalog.Record) map[string][]snapshot.Candidate {
	return bl.record(ctx, rec, bl.cat.WriteFile)
}

// RecordOrdered stores the originals of changed files as [Recorder.Record] does, but a power loss within the next
// seconds may lose them.
func (bl *Recorder) RecordOrdered(ctx context.Context, rec *catalog.Record) map[string][]snapshot.Candidate {
	return bl.record(ctx, rec, bl.cat.WriteFileOrdered)
}

// A storeFile writes a file of a sandbox, as [catalog.Catalog.WriteFile] does.
type storeFile func(name, file string, data []byte) error

func (bl *Recorder) record(ctx context.Context, rec *catalog.Record, store storeFile) map[string][]snapshot.Candidate {
	changed, err := bl.tryRecord(ctx, rec, store)
	if err != nil && ctx.Err() == nil {
		bl.notice("the baseline of sandbox " + rec.Name + " was not recorded: " + err.Error())
	}
	return changed
}

// TryRecord stores the originals of changed files as Record does, but returns errors, for a caller that can
// still abort. It skips trees that have vanished.
func (bl *Recorder) TryRecord(ctx context.Context, rec *catalog.Record) (map[string][]snapshot.Candidate, error) {
	return bl.tryRecord(ctx, rec, bl.cat.WriteFile)
}

func (bl *Recorder) tryRecord(ctx context.Context, rec *catalog.Record, store storeFile) (map[string][]snapshot.Candidate, error) {
	changed := map[string][]snapshot.Candidate{}
	if rec.Ephemeral || rec.State != catalog.Ready {
		return changed, nil
	}
	var failures []error
	for i := range rec.Trees {
		t := &rec.Trees[i]
		if t.Frozen || hostfs.Vanished(*t, rec.Workspace) {
			continue
		}
		touches, err := bl.recordTree(ctx, rec, t, store)
		if err == nil {
			changed[t.Path] = touches
		}
		if !errors.Is(err, errs.ErrNotFound) {
			failures = append(failures, err)
		}
	}
	return changed, errors.Join(failures...)
}

// recordTree stores the originals of changed files in one tree, and returns all paths that the sandbox has
// changed there. Error: errs.ErrNotFound if the backend cannot list changes.
func (bl *Recorder) recordTree(ctx context.Context, rec *catalog.Record, t *catalog.Tree, store storeFile) (touches []snapshot.Candidate, err error) {
	b, err := bl.host.BackendOf(ctx, *t)
	if err != nil {
		return nil, err
	}
	lister, ok := b.(snapshot.ChangeLister)
	if !ok {
		return nil, errs.ErrNotFound // this backend cannot list changes
	}
	read := sync.OnceValues(func() (*Baseline, error) { return bl.Read(rec) }) // most commands change nothing
	skip := bl.host.Skip(b, t.Path)
	var fresh []snapshot.Candidate
	for touch, err := range lister.ListChanges(ctx, t.Base, t.Fork) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		touches = append(touches, touch)
		if touch.Path == "." {
			continue
		}
		had, err := read()
		if err != nil {
			return nil, err
		}
		abs := filepath.Join(t.Path, touch.Path)
		if _, recorded := had.Nodes[abs]; !recorded && !had.Absent(abs) && !skip(touch.Path) {
			fresh = append(fresh, touch)
		}
	}
	if len(fresh) == 0 {
		return touches, nil
	}
	return touches, bl.update(ctx, rec, store, func(k *Baseline) error {
		known, err := bl.Stamps(rec.Name) // complete: Update holds the lock that promotions hold, too
		if err != nil {
			return err
		}
		return bl.recordTouches(ctx, rec, k, t, b, fresh, known.In(t.Path))
	})
}

// recordTouches stores the originals of the files at the paths touches, which the sandbox has changed, in its
// baseline k, until k is full. known are the stamps (inode and change time) of files that the sandbox's own
// promotions wrote: such a file has changed since the base, but counts as unchanged, so that its present state is the
// original.
func (bl *Recorder) recordTouches(ctx context.Context, rec *catalog.Record, k *Baseline, t *catalog.Tree, b snapshot.Backend, touches []snapshot.Candidate, known map[string]promote.Stamp) error {
	root, err := OpenRoot(t.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	view := &forkView{ctx: ctx, b: b, t: t}
	defer view.close()
	originals, err := originalsOf(ctx, b, t)
	if err != nil {
		return err
	}
	recorder := pathRecorder{
		ctx: ctx, baseline: k, tree: t.Path, originals: originals, holds: bl.holds,
		history:  bl.latestHistory(bl.Since(rec, t)),
		manifest: sync.OnceValue(func() *manifest { return bl.manifestOf(ctx, rec, bl.Since(rec, t)) }),
		base:     LiveBase{Real: RootedReader{Root: root}, Since: bl.Since(rec, t), OpenFork: view.open, Known: known},
	}
	defer recorder.base.Real.Close()
	for _, touch := range touches {
		if err := ctx.Err(); err != nil || k.full() {
			return err
		}
		if err := recorder.record(touch.Path, touch.Tree); err != nil {
			return err
		}
	}
	return nil
}

// A forkView is one tree as the sandbox sees it (its fork), mounted and opened at the first use. It gives the
// sandbox's version of files whose originals are stored.
type forkView struct {
	ctx context.Context
	b   snapshot.Backend
	t   *catalog.Tree
	dir *os.File
}

func (v *forkView) open() (*os.File, error) {
	if v.dir != nil {
		return v.dir, nil
	}
	f, err := v.b.LookupFork(v.ctx, v.t.Fork)
	if err != nil {
		return nil, err
	}
	dirs, err := hostfs.OpenViews(v.ctx, isolate.OpenViews, v.t.Path, hostfs.MountOf("/", f.View))
	if errors.Is(err, hostfs.ErrMounted) { // every path of interest is in the layers
		dirs, err = isolate.OpenViews(v.ctx, []isolate.Mount{hostfs.MountOf("/", hostfs.WithoutBase(f.View))})
	}
	if err != nil {
		return nil, err
	}
	v.dir = dirs[0]
	return v.dir, nil
}

func (v *forkView) close() {
	if v.dir != nil {
		v.dir.Close()
	}
}

// A pathRecorder stores the originals of changed files in one tree in the sandbox's baseline. It looks for
// them in the real tree, in the backend, and among files that promotions replaced.
type pathRecorder struct {
	ctx      context.Context
	baseline *Baseline
	tree     string
	base     LiveBase
	// originals are the copies that the backend itself has made, by path.
	originals map[string]snapshot.Original
	// history reads what promotions have displaced, manifest what the workspace held.
	history  func() *history
	manifest func() *manifest
	holds    Holds
}

// originalsOf lists, by path, the originals that the backend itself has stored for a tree, nil if it stores
// none.
func originalsOf(ctx context.Context, b snapshot.Backend, t *catalog.Tree) (map[string]snapshot.Original, error) {
	store, ok := b.(snapshot.OriginalStore)
	if !ok {
		return nil, nil
	}
	all := map[string]snapshot.Original{}
	for o, err := range store.Originals(ctx, t.Base, t.Fork) {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errs.ErrNotSupported):
			return nil, nil
		case err != nil:
			return nil, err
		}
		all[o.Path] = o
	}
	return all, nil
}

// record stores the original at a path that the sandbox changed. If that was a directory and the sandbox deleted it,
// it also stores everything in the directory. whole means that the sandbox's directory there shows none of the
// original entries: record stores them, too.
func (k *pathRecorder) record(path string, whole bool) error {
	abs := filepath.Join(k.tree, path)
	if _, recorded := k.baseline.Nodes[abs]; recorded || k.baseline.Absent(abs) || k.baseline.full() {
		return nil
	}
	n, why, err := k.base.At(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil // a path that this user may not read was not changed by the sandbox
	}
	if err != nil {
		return err
	}
	if o := k.stored(path, why); o != nil {
		return k.recordOriginal(abs, n, o)
	}
	if why != "" && why != mapped {
		switch e, data, known := k.lookBack(path, n); {
		case known && n != nil && e.Node == n:
			why = ""
		case known:
			e, data = k.latestHeld(path, n, e, data)
			return k.recordKnown(abs, e, data)
		}
	}
	node := Entry{Node: n, Unknown: why} // an unknown original stays unknown
	if n != nil && n.Mode.IsRegular() && n.Size <= maxText && k.baseline.bytes+n.Size <= maxBytes {
		if node.Data, err = k.storeText(path, n); err != nil {
			return err
		}
	}
	k.baseline.Set(abs, node)
	if n != nil && n.Mode.IsDir() {
		return k.recordDescendants(path, whole)
	}
	return nil
}

// lookBack returns the original at a path whose real file n has changed since, and the bytes of a small text.
// It looks among files that promotions replaced and in the stored list of the workspace's files. It returns
// false if the original is not known.
func (k *pathRecorder) lookBack(path string, n *diff.Node) (Entry, []byte, bool) {
	e, from, known := k.history().original(k.tree, path, n, &k.base.Real)
	switch {
	case known && from == nil && n != nil, !known && n != nil && k.copiedUp(path, n):
		return Entry{Node: n}, nil, true // only its directory has changed, or it changed before the sandbox did
	case known:
		return e, from.text(&e), true
	}
	return k.manifest().original(filepath.Join(k.tree, path), k.base.Since)
}

// copiedUp reports whether the sandbox's file at path is a copy of the real file n, made after the last
// change of n: then the sandbox started from n as it is now.
func (k *pathRecorder) copiedUp(path string, n *diff.Node) bool {
	tree, err := k.base.OpenFork()
	if err != nil || !n.Mode.IsRegular() {
		return false
	}
	l := RootedReader{Root: tree}
	defer l.Close()
	st, err := l.stat(path)
	return err == nil && st.IsRegular() && st.Ino == n.Ino && vfs.ChangedBefore(n.CTime, st.BTime.Time())
}

// recordKnown stores e as the original at an absolute path, with the bytes of a small text, nil for none.
func (k *pathRecorder) recordKnown(abs string, e Entry, data []byte) (err error) {
	e.Data = ""
	if data != nil && k.baseline.bytes+int64(len(data)) <= maxBytes {
		if e.Data, err = k.baseline.Store(data, nil); err != nil {
			return err
		}
	}
	k.baseline.Set(abs, e)
	return nil
}

// stored returns the original of a file, its state in the base, that the backend has copied; nil if there is
// none. It does so in two cases: the real tree no longer shows the original (why is the reason, else ""), or
// the sandbox read the file before the real one changed.
func (k *pathRecorder) stored(path, why string) *snapshot.Original {
	if o, ok := k.originals[path]; ok && (why != "" || o.OnlyRead) {
		return &o
	}
	return nil
}

// recordOriginal stores an original from o, the backend's copy, for a file, at the absolute path abs, that the real
// tree no longer has in that state. now is the real node.
func (k *pathRecorder) recordOriginal(abs string, now *diff.Node, o *snapshot.Original) error {
	if o.OnlyRead {
		e, data, known := k.version(abs, o)
		if known {
			e, data = k.latestHeld(o.Path, now, e, data)
		} else {
			e = Entry{Node: now, Unknown: "the sandbox read it before it changed, and what it read is no longer available"}
		}
		return k.recordKnown(abs, e, data)
	}
	n := &diff.Node{
		Mode: o.Mode, UID: o.UID, GID: o.GID, Size: o.Size, MTime: o.MTime, CTime: o.CTime, Xattrs: o.Xattrs, NLink: 1,
	}
	node := Entry{Node: n}
	if o.Content != "" && n.Size <= maxText && k.baseline.bytes+n.Size <= maxBytes {
		f, err := os.Open(o.Content)
		if err != nil {
			return errs.With("recording", o.Content, err)
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxText+1))
		if err == nil && int64(len(data)) == n.Size && bytes.IndexByte(data, 0) < 0 {
			if node.Data, err = k.baseline.Store(data, f); err != nil {
				return err
			}
		}
	}
	k.baseline.Set(abs, node)
	return nil
}

// version returns the version of a real file that the sandbox read, and the bytes of a small text. o is the
// backend's record of it. version looks among the files that promotions replaced, and in the stored list of
// the workspace's files; false if neither has it.
func (k *pathRecorder) version(abs string, o *snapshot.Original) (Entry, []byte, bool) {
	is := func(e Entry) bool { return e.Node != nil && e.Node.Ino == o.Ino && e.Node.CTime.Equal(o.CTime) }
	for _, d := range k.history().all {
		if e := d.baseline.Nodes[abs]; is(e) {
			return e, d.text(&e), true
		}
	}
	m := k.manifest()
	e := m.list.Nodes[abs]
	return e, m.list.text(&e), is(e)
}

// recordDescendants stores the originals of everything in a real directory that the sandbox has deleted or,
// with whole, replaced. If the sandbox otherwise has a directory there, it does nothing, because the backend
// lists the changed entries one by one.
func (k *pathRecorder) recordDescendants(path string, whole bool) error {
	tree, err := k.base.OpenFork()
	if err != nil {
		return err
	}
	l := RootedReader{Root: tree}
	defer l.Close()
	st, err := l.stat(path)
	if err == nil && st.IsDir() && !whole || err != nil && !isAbsence(err) {
		return err
	}
	dir, err := k.base.Real.Dir(path)
	if err != nil {
		return Absence(err)
	}
	list, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		return err
	}
	vfs.SortEntries(list)
	for _, entry := range list {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		if err := k.record(path+"/"+entry.Name, whole); err != nil {
			return err
		}
	}
	return nil
}

// storeText copies a small text of the real tree, the file n, to the directory of the baseline and returns
// the name of the copy. It returns "" for a file that is not text, cannot be read, or changed during the
// read.
func (k *pathRecorder) storeText(path string, n *diff.Node) (string, error) {
	f, err := k.base.Real.Open(path)
	if err != nil {
		return "", nil // deleted, or not readable for this user
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil || int64(len(data)) != n.Size || bytes.IndexByte(data, 0) >= 0 {
		return "", nil // unreadable or not text: record no bytes
	}
	name, err := k.baseline.Store(data, f)
	if err != nil {
		return "", err
	}
	if st, err := vfs.Lstat(int(f.Fd()), ""); err != nil || st.Ino != n.Ino || !st.CTime.Time().Equal(n.CTime) {
		return "", nil // it changed during the read
	}
	return name, nil
}

// Store writes the bytes of an original to a file in the baseline's directory, named by their SHA-256, and
// returns the name. If same is not nil it is a file with these bytes, and the copy shares its blocks if the
// filesystem can do so. The caller holds the lock of the baseline.
func (k *Baseline) Store(data []byte, same *os.File) (string, error) {
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	path := filepath.Join(k.Dir, name)
	if _, err := os.Lstat(path); err == nil {
		return name, nil
	}
	tmp, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600) // under the lock
	if err == nil {
		if same == nil || vfs.CloneFile(tmp, same) != nil || !hasBytes(tmp, data) {
			if err = tmp.Truncate(0); err == nil {
				_, err = tmp.WriteAt(data, 0)
			}
		}
		err = errors.Join(err, tmp.Close())
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
		return "", errs.With("recording", path, err)
	}
	k.bytes += int64(len(data))
	return name, nil
}

// hasBytes reports whether f, a reflink of a real file, has exactly the content data. Its content may differ
// if another process wrote the real file meanwhile.
func hasBytes(f *os.File, data []byte) bool {
	got := make([]byte, len(data)+1)
	n, err := f.ReadAt(got, 0)
	return errors.Is(err, io.EOF) && bytes.Equal(got[:n], data)
}
