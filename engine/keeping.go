package engine

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
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// keepBase keeps what the live bases of a sandbox held at the places that it has
// changed, as far as that can still be told. It is called whenever snapfs looks
// at a sandbox anyway, and by nothing that somebody waits for before a command.
// What cannot be kept is a conflict later, if it comes to that: so nothing here
// is an error of the command that it helps. It answers with the touched places of
// the trees that it has looked at whole, by their paths: as long as nothing runs
// in the sandbox they are all there is to compare.
//
// Cost: reading what the sandbox's own layers hold; for each place that is new
// there a statx of the real one, and a copy of its bytes where it is a small text.
func (e *Engine) keepBase(ctx context.Context, rec *catalog.Record) map[string][]snapshot.Touch {
	looked, err := e.tryToKeepBase(ctx, rec)
	if err != nil && !errors.Is(err, errs.ErrInterrupted) {
		e.notice("what " + rec.Name + " began with is not kept: " + err.Error())
	}
	return looked
}

// tryToKeepBase is keepBase for who can still turn back. Trees that have just gone
// are left out.
func (e *Engine) tryToKeepBase(ctx context.Context, rec *catalog.Record) (map[string][]snapshot.Touch, error) {
	looked := map[string][]snapshot.Touch{}
	if rec.Ephemeral || rec.State != catalog.Ready {
		return looked, nil
	}
	var failures []error
	for i := range rec.Trees {
		t := &rec.Trees[i]
		if t.Frozen || vanished(*t, rec.Workspace) {
			continue
		}
		touches, err := e.keepTree(ctx, rec, t)
		if err == nil {
			looked[t.Path] = touches
		}
		if !errors.Is(err, errs.ErrNotFound) {
			failures = append(failures, err)
		}
	}
	return looked, errors.Join(failures...)
}

func (e *Engine) keepTree(ctx context.Context, rec *catalog.Record, t *catalog.Tree) (touches []snapshot.Touch, err error) {
	b, err := e.backendOf(ctx, *t)
	if err != nil {
		return nil, err
	}
	toucher, ok := b.(snapshot.Toucher)
	if !ok {
		return nil, errs.ErrNotFound // it keeps nothing, and cannot tell
	}
	had, err := e.readKept(rec)
	if err != nil {
		return nil, err
	}
	skip := e.skip(b, t.Path)
	var fresh []snapshot.Touch
	for touch, err := range toucher.Touched(ctx, t.Base, t.Fork) {
		if err != nil {
			return nil, err
		}
		touches = append(touches, touch)
		abs := filepath.Join(t.Path, touch.Path)
		if _, kept := had.nodes[abs]; !kept && touch.Path != "." && !had.absent(abs) && !skip(touch.Path) {
			fresh = append(fresh, touch)
		}
	}
	if len(fresh) == 0 {
		return touches, nil
	}
	return touches, e.updateKept(ctx, rec, func(k *kept) error {
		known, err := e.stamps(rec.Name) // of all that was applied, since nobody applies meanwhile
		if err != nil {
			return err
		}
		return e.keepTouches(ctx, k, t, b, fresh, known.in(t.Path))
	})
}

// keepTouches looks at places that are not kept yet.
func (e *Engine) keepTouches(ctx context.Context, k *kept, t *catalog.Tree, b snapshot.Backend, touches []snapshot.Touch, known map[string]promote.Stamp) error {
	root, err := openRoot(t.Path)
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
	keeper := keeper{
		k: k, tree: t.Path, originals: originals,
		// Taken is by the clock that files are stamped with: no margin is needed.
		base: liveBase{real: looker{root: root}, taken: t.Taken, mine: view.open, known: known},
	}
	defer keeper.base.real.close()
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
	dirs, err := openViews(v.ctx, isolate.OpenViews, v.t.Path, mountOf("/", f.View))
	var m *mountedError
	if errors.As(err, &m) { // only places are looked at that the layers have
		dirs, err = isolate.OpenViews(v.ctx, []isolate.Mount{mountOf("/", withoutBase(f.View))})
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

// A keeper of bases looks at one tree.
type keeper struct {
	k    *kept
	tree string
	base liveBase
	// originals are what the backend has kept, by path.
	originals map[string]snapshot.Original
}

// originalsOf are the files that a backend keeps by itself.
func originalsOf(ctx context.Context, b snapshot.Backend, t *catalog.Tree) (map[string]snapshot.Original, error) {
	keeper, ok := b.(snapshot.Keeper)
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
func (k *keeper) one(path string) error {
	abs := filepath.Join(k.tree, path)
	if _, kept := k.k.nodes[abs]; kept || k.k.absent(abs) || k.k.full() {
		return nil
	}
	n, why, err := k.base.at(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil // what this user may not look at, the sandbox did not change
	}
	if err != nil {
		return err
	}
	if o, ok := k.originals[path]; ok && why != "" && o.CTime.Before(k.base.taken) {
		return k.original(abs, &o)
	}
	node := keptNode{Node: n, Unknown: why} // what is not known now will not be known later
	if n != nil && n.Mode.IsRegular() && n.Size <= keptText && k.k.bytes+n.Size <= keptBytes {
		if node.Data, err = k.text(path, n); err != nil {
			return err
		}
	}
	k.k.set(abs, node)
	if n != nil && n.Mode.IsDir() {
		return k.beneath(path)
	}
	return nil
}

// original keeps a file that the real tree does not have any more as it was.
func (k *keeper) original(abs string, o *snapshot.Original) error {
	n := &diff.Node{
		Mode: o.Mode, UID: o.UID, GID: o.GID, Size: o.Size, MTime: o.MTime, CTime: o.CTime, Xattrs: o.Xattrs, NLink: 1,
	}
	node := keptNode{Node: n}
	if o.Content != "" && n.Size <= keptText && k.k.bytes+n.Size <= keptBytes {
		f, err := os.Open(o.Content)
		if err != nil {
			return &errs.Error{Op: "keeping", Path: o.Content, Kind: errs.KindOf(err), Err: err}
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, keptText+1))
		if err == nil && int64(len(data)) == n.Size && bytes.IndexByte(data, 0) < 0 {
			if node.Data, err = k.k.store(data, f); err != nil {
				return err
			}
		}
	}
	k.k.set(abs, node)
	return nil
}

// beneath keeps what lies in a directory that the sandbox has deleted, or put
// something else in the place of. What it has there still is touched by itself.
func (k *keeper) beneath(path string) error {
	tree, err := k.base.mine()
	if err != nil {
		return err
	}
	l := looker{root: tree}
	defer l.close()
	st, err := l.stat(path)
	if err == nil && st.IsDir() || err != nil && !nowhere(err) {
		return err
	}
	dir, err := k.base.real.dir(path)
	if err != nil {
		return absence(err)
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
func (k *keeper) text(path string, n *diff.Node) (string, error) {
	f, err := k.base.real.open(path)
	if err != nil {
		return "", nil // gone, or not this user's to read
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, keptText+1))
	if err != nil || int64(len(data)) != n.Size || bytes.IndexByte(data, 0) >= 0 {
		return "", nil // what cannot be read is not kept
	}
	name, err := k.k.store(data, f)
	if err != nil {
		return "", err
	}
	if st, err := vfs.Lstat(int(f.Fd()), ""); err != nil || st.Ino != n.Ino || !st.CTime.Time().Equal(n.CTime) {
		return "", nil // it is not what the base had
	}
	return name, nil
}

// store keeps bytes under their hash. same is a file with them to share blocks
// with, or nil.
func (k *kept) store(data []byte, same *os.File) (string, error) {
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	path := filepath.Join(k.dir, name)
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

// wentBack: a sandbox that was rolled back has not carried anything any more that
// it may change again, and what was answered in it may be open again.
func (e *Engine) wentBack(ctx context.Context, rec *catalog.Record) error {
	dir := e.baseDir(rec.Name, rec.Refreshed)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	list, err := e.readConflicts(rec)
	if err != nil {
		return err
	}
	for i := range list.Conflicts {
		list.Conflicts[i].Resolved = ""
	}
	if len(list.Conflicts) > 0 {
		if err := e.saveConflicts(rec, list); err != nil {
			return err
		}
	}
	return e.updateKept(ctx, rec, func(k *kept) error {
		for path := range k.nodes {
			k.uncarry(path)
		}
		return nil
	})
}
