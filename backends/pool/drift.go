//go:build linux

package pool

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

var _ snapshot.DriftDetector = (*backend)(nil)

// DetectDrift yields the paths of the workspace that changed since the snapshot id, for
// [snapshot.DriftDetector]. For a workspace that is itself on the pool (adopted) btrfs lists them. For an
// imported one it walks the workspace and compares it with the manifest, the list of its files at the last
// import, and then compares the pool's copy with the snapshot: a path that is equal in both steps has not
// changed. Without a manifest: ErrNotSupported.
func (b *backend) DetectDrift(ctx context.Context, id snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	if !b.walks {
		return b.Backend.DetectDrift(ctx, id)
	}
	return func(yield func(snapshot.Candidate, error) bool) {
		s, err := b.Lookup(ctx, id)
		if err != nil {
			yield(snapshot.Candidate{}, err)
			return
		}
		// The manifest is read before the copy is compared, so that an import that ends in between
		// shows in the copy.
		touches, err := b.pool.driftOf(ctx, s.Tree.Path)
		if err != nil {
			yield(snapshot.Candidate{}, failed("comparing with the last import", "", s.Tree.Path, err))
			return
		}
		for _, t := range touches {
			if !yield(t, nil) {
				return
			}
		}
		for t, err := range b.Backend.DetectDrift(ctx, id) {
			if !yield(t, err) {
				return
			}
		}
	}
}

// driftOf lists the paths at which the workspace tree may differ from the pool's copy, made by the last
// import.
func (p *Pool) driftOf(ctx context.Context, tree string) ([]snapshot.Candidate, error) {
	r, err := p.record(tree)
	if err != nil {
		return nil, err
	}
	old, err := readManifest(ctx, filepath.Join(p.home(tree), "manifest"))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, unsupported("the manifest of the last import is not readable", "snapfs pool import "+errs.Quoted(tree))
	}
	late := r.Synced.Add(-racy)
	m := driftWalker{
		ctx: ctx, old: old, late: vfs.Timestamp{Sec: late.Unix(), Nsec: uint32(late.Nanosecond())},
		slots: make(chan struct{}, walkers-1),
	}
	if m.skip, err = p.ownDirectory(); err != nil {
		return nil, err
	}
	root, err := vfs.OpenDir(unix.AT_FDCWD, tree)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	top, err := vfs.Lstat(int(root.Fd()), "")
	if err != nil {
		return nil, err
	}
	m.mount = top.Mount
	was, known := old.dir("")
	switch {
	case !known || len(was) != 1 || was[0].ino != top.Ino:
		return []snapshot.Candidate{{Path: ".", Tree: true}}, nil
	case was[0].inode != inodeOf(&top):
		m.add(".", false)
	}
	m.dir(root, ".")
	m.wait.Wait()
	return m.candidates, ctx.Err()
}

const (
	// walkers is the number of threads that walk a workspace to find changes; a third would gain nothing.
	walkers = 2
	// racy is how long before an import a file may have changed without getting another ctime than at the
	// import, so that it must be compared again: two ticks of the slowest clock.
	racy = 20 * time.Millisecond
)

// A driftWalker walks a workspace and compares it with the manifest, the list of its files at the last import
// into the pool, to find the paths that changed since.
type driftWalker struct {
	ctx   context.Context
	old   manifest
	late  vfs.Timestamp
	skip  func(*vfs.Stat) bool
	mount uint64
	slots chan struct{} // a slot for each goroutine besides the first
	wait  sync.WaitGroup

	mu         sync.Mutex
	candidates []snapshot.Candidate
}

func (m *driftWalker) add(path string, tree bool) {
	m.mu.Lock()
	m.candidates = append(m.candidates, snapshot.Candidate{Path: path, Tree: tree})
	m.mu.Unlock()
}

// dir adds to the list of changes the entries in which the directory at path of the workspace differs from
// the manifest, the list of its files at the last import. It adds the directory as a whole if the manifest
// lacks it.
func (m *driftWalker) dir(dir *os.File, path string) {
	if m.ctx.Err() != nil {
		return // driftOf returns that error
	}
	old, known := m.old.dir(path)
	entries, err := vfs.Entries(int(dir.Fd()))
	if !known || err != nil {
		m.add(path, true)
		return
	}
	vfs.SortEntries(entries)
	for _, e := range entries {
		if m.ctx.Err() != nil {
			return
		}
		st, err := vfs.Lstat(int(dir.Fd()), e.Name)
		if errors.Is(err, os.ErrNotExist) || err == nil && m.skip(&st) {
			continue
		}
		at := filepath.Join(path, e.Name)
		was, known := find(old, e.Name)
		same := err == nil && known && was.ino == st.Ino && was.mode&unix.S_IFMT == st.Mode&unix.S_IFMT
		switch {
		case !same:
			m.add(at, true)
		case was != inodeOf(&st) || st.CTime.After(m.late):
			m.add(at, false)
		}
		if same && st.IsDir() && st.Mount == m.mount {
			m.enter(dir, e.Name, at)
		}
	}
	for _, was := range old {
		_, there := slices.BinarySearchFunc(entries, was.name, func(e vfs.Entry, name string) int { return cmp.Compare(e.Name, name) })
		if !there {
			m.add(filepath.Join(path, was.name), true)
		}
	}
}

// enter compares the subdirectory name of the workspace, at path, with the manifest (the list of files at the
// last import), in another goroutine if one is free.
func (m *driftWalker) enter(parent *os.File, name, path string) {
	dir, err := vfs.OpenDir(int(parent.Fd()), name)
	if err != nil {
		m.add(path, true)
		return
	}
	work := func() {
		defer dir.Close()
		m.dir(dir, path)
	}
	select {
	case m.slots <- struct{}{}:
		m.wait.Go(func() {
			defer func() { <-m.slots }()
			work()
		})
	default:
		work()
	}
}
