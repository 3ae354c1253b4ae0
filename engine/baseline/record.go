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

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// Record keeps what the live bases of a sandbox held at the places that it has
// changed, as far as that can still be told. It is called whenever snapfs looks
// at a sandbox anyway, and by nothing that somebody waits for before a command.
// What cannot be kept is a conflict later, if it comes to that: so nothing here
// is an error of the command that it helps. It answers with the touched places of
// the trees that it has looked at whole, by their paths: as long as nothing runs
// in the sandbox they are all there is to compare.
//
// Cost: reading what the sandbox's own layers hold; for each place that is new
// there a statx of the real one, and a copy of its bytes where it is a small text.
func (bl *Recorder) Record(ctx context.Context, rec *catalog.Record) map[string][]snapshot.Candidate {
	looked, err := bl.TryRecord(ctx, rec)
	if err != nil && !errors.Is(err, errs.ErrInterrupted) {
		bl.notice("what " + rec.Name + " began with is not kept: " + err.Error())
	}
	return looked
}

// TryRecord is keepBase for who can still turn back. Trees that have just gone
// are left out.
func (bl *Recorder) TryRecord(ctx context.Context, rec *catalog.Record) (map[string][]snapshot.Candidate, error) {
	looked := map[string][]snapshot.Candidate{}
	if rec.Ephemeral || rec.State != catalog.Ready {
		return looked, nil
	}
	var failures []error
	for i := range rec.Trees {
		t := &rec.Trees[i]
		if t.Frozen || hostfs.Vanished(*t, rec.Workspace) {
			continue
		}
		touches, err := bl.recordTree(ctx, rec, t)
		if err == nil {
			looked[t.Path] = touches
		}
		if !errors.Is(err, errs.ErrNotFound) {
			failures = append(failures, err)
		}
	}
	return looked, errors.Join(failures...)
}

func (bl *Recorder) recordTree(ctx context.Context, rec *catalog.Record, t *catalog.Tree) (touches []snapshot.Candidate, err error) {
	b, err := bl.host.BackendOf(ctx, *t)
	if err != nil {
		return nil, err
	}
	toucher, ok := b.(snapshot.ChangeLister)
	if !ok {
		return nil, errs.ErrNotFound // it keeps nothing, and cannot tell
	}
	had, err := bl.Read(rec)
	if err != nil {
		return nil, err
	}
	skip := bl.host.Skip(b, t.Path)
	var fresh []snapshot.Candidate
	for touch, err := range toucher.ListChanges(ctx, t.Base, t.Fork) {
		if err != nil {
			return nil, err
		}
		touches = append(touches, touch)
		abs := filepath.Join(t.Path, touch.Path)
		if _, kept := had.Nodes[abs]; !kept && touch.Path != "." && !had.Absent(abs) && !skip(touch.Path) {
			fresh = append(fresh, touch)
		}
	}
	if len(fresh) == 0 {
		return touches, nil
	}
	return touches, bl.Update(ctx, rec, func(k *Baseline) error {
		known, err := bl.Stamps(rec.Name) // of all that was applied, since nobody applies meanwhile
		if err != nil {
			return err
		}
		return recordTouches(ctx, k, t, b, fresh, known.In(t.Path))
	})
}

// recordTouches looks at places that are not kept yet.
func recordTouches(ctx context.Context, k *Baseline, t *catalog.Tree, b snapshot.Backend, touches []snapshot.Candidate, known map[string]promote.Stamp) error {
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
	keeper := pathRecorder{
		k: k, tree: t.Path, originals: originals,
		// Taken is by the clock that files are stamped with: no margin is needed.
		base: LiveBase{Real: RootedReader{Root: root}, Taken: t.Taken, Mine: view.open, Known: known},
	}
	defer keeper.base.Real.Close()
	for _, touch := range touches {
		if err := ctx.Err(); err != nil || k.full() {
			return err
		}
		if err := keeper.one(touch.Path); err != nil {
			return err
		}
	}
	return nil
}

// A forkView opens a sandbox's tree when it is first asked for.
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
	var m *hostfs.MountedError
	if errors.As(err, &m) { // only places are looked at that the layers have
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

// A pathRecorder of bases looks at one tree.
type pathRecorder struct {
	k    *Baseline
	tree string
	base LiveBase
	// originals are what the backend has kept, by path.
	originals map[string]snapshot.Original
}

// originalsOf are the files that a backend keeps by itself.
func originalsOf(ctx context.Context, b snapshot.Backend, t *catalog.Tree) (map[string]snapshot.Original, error) {
	keeper, ok := b.(snapshot.OriginalStore)
	if !ok {
		return nil, nil
	}
	all := map[string]snapshot.Original{}
	for o, err := range keeper.Originals(ctx, t.Base, t.Fork) {
		switch {
		case errors.Is(err, errs.ErrNotSupported):
			return nil, nil
		case err != nil:
			return nil, err
		}
		all[o.Path] = o
	}
	return all, nil
}

// one keeps what the base had at a path, and beneath it where that was a directory
// that the sandbox does not have any more.
func (k *pathRecorder) one(path string) error {
	abs := filepath.Join(k.tree, path)
	if _, kept := k.k.Nodes[abs]; kept || k.k.Absent(abs) || k.k.full() {
		return nil
	}
	n, why, err := k.base.At(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil // what this user may not look at, the sandbox did not change
	}
	if err != nil {
		return err
	}
	if o, ok := k.originals[path]; ok && why != "" && o.CTime.Before(k.base.Taken) {
		return k.original(abs, &o)
	}
	node := Entry{Node: n, Unknown: why} // what is not known now will not be known later
	if n != nil && n.Mode.IsRegular() && n.Size <= keptText && k.k.bytes+n.Size <= keptBytes {
		if node.Data, err = k.text(path, n); err != nil {
			return err
		}
	}
	k.k.Set(abs, node)
	if n != nil && n.Mode.IsDir() {
		return k.beneath(path)
	}
	return nil
}

// original keeps a file that the real tree does not have any more as it was.
func (k *pathRecorder) original(abs string, o *snapshot.Original) error {
	n := &diff.Node{
		Mode: o.Mode, UID: o.UID, GID: o.GID, Size: o.Size, MTime: o.MTime, CTime: o.CTime, Xattrs: o.Xattrs, NLink: 1,
	}
	node := Entry{Node: n}
	if o.Content != "" && n.Size <= keptText && k.k.bytes+n.Size <= keptBytes {
		f, err := os.Open(o.Content)
		if err != nil {
			return &errs.Error{Op: "keeping", Path: o.Content, Kind: errs.KindOf(err), Err: err}
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, keptText+1))
		if err == nil && int64(len(data)) == n.Size && bytes.IndexByte(data, 0) < 0 {
			if node.Data, err = k.k.Store(data, f); err != nil {
				return err
			}
		}
	}
	k.k.Set(abs, node)
	return nil
}

// beneath keeps what lies in a directory that the sandbox has deleted, or put
// something else in the place of. What it has there still is touched by itself.
func (k *pathRecorder) beneath(path string) error {
	tree, err := k.base.Mine()
	if err != nil {
		return err
	}
	l := RootedReader{Root: tree}
	defer l.Close()
	st, err := l.stat(path)
	if err == nil && st.IsDir() || err != nil && !isAbsence(err) {
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
		if err := k.one(path + "/" + entry.Name); err != nil {
			return err
		}
	}
	return nil
}

// text keeps the bytes of a text, and answers with the name of the file that has
// them, or "" where it is none, cannot be read, or was just changed.
func (k *pathRecorder) text(path string, n *diff.Node) (string, error) {
	f, err := k.base.Real.Open(path)
	if err != nil {
		return "", nil // gone, or not this user's to read
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, keptText+1))
	if err != nil || int64(len(data)) != n.Size || bytes.IndexByte(data, 0) >= 0 {
		return "", nil // what cannot be read is not kept
	}
	name, err := k.k.Store(data, f)
	if err != nil {
		return "", err
	}
	if st, err := vfs.Lstat(int(f.Fd()), ""); err != nil || st.Ino != n.Ino || !st.CTime.Time().Equal(n.CTime) {
		return "", nil // it is not what the base had
	}
	return name, nil
}

// Store keeps bytes under their hash. same is a file with them to share blocks
// with, or nil.
func (k *Baseline) Store(data []byte, same *os.File) (string, error) {
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	path := filepath.Join(k.Dir, name)
	if _, err := os.Lstat(path); err == nil {
		return name, nil
	}
	tmp, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600) // under the lock
	if err == nil {
		if same == nil || vfs.CloneFile(tmp, same) != nil || !holds(tmp, data) {
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
		return "", &errs.Error{Op: "keeping", Path: path, Kind: errs.KindOf(err), Err: err}
	}
	k.bytes += int64(len(data))
	return name, nil
}

// holds: a file that shares blocks with another that may change has these bytes.
func holds(f *os.File, data []byte) bool {
	got := make([]byte, len(data)+1)
	n, err := f.ReadAt(got, 0)
	return errors.Is(err, io.EOF) && bytes.Equal(got[:n], data)
}
