//go:build linux

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Progress is how far an import of a workspace into a pool has come, or a move of one. The caller of
// [Pool.Import] shows it to the user.
type Progress struct {
	// Seen and Copied count files and directories, Bytes the copied content.
	Seen, Copied int64
	Bytes        snapshot.Bytes
}

// A Report is the result of [Pool.Import], the import of a workspace into a pool, for the user.
type Report struct {
	Progress
	// Deleted counts deleted names; a directory with its content counts once.
	Deleted int64
	// Unsettled lists files that changed during every attempt to copy them; the copy of each
	// may mix several states.
	Unsettled []string
}

// A syncer makes the directory dst, the pool's copy, equal to src, a workspace. It uses the manifest of its
// last run, which lists the files that it then found, to copy only changes. It preserves types, modes,
// owners, mtimes, extended attributes, hard links, holes, devices, sockets and all names, but no access
// times. A mount point in src becomes an empty directory.
type syncer struct {
	src, dst *os.File
	old      manifest
	// doubt is set if an earlier run did not finish, so that the copy may have entries that
	// the manifest lacks.
	doubt    bool
	progress func(Progress)
	// before is called once, before the first change of dst.
	before func() error
	skip   func(*vfs.Stat) bool
	mount  uint64
	// hasRoom returns an error if no more bytes may be copied. It is called after each 16 MiB; may be
	// nil.
	hasRoom func(need int64) error
	since   atomic.Int64

	mu     sync.Mutex
	report Report
	blocks []byte
	once   sync.Once
	err    error
	// changed is set once the copy was modified.
	changed bool
	slots   chan struct{} // a slot for each goroutine besides the first
	dirs    []string      // directories whose attributes are set at the end
	linked  map[uint64]string
	later   []laterLink
}

// A laterLink is a name of a file with several hard links. A syncer makes it in the copy after all other
// files, because it may become a link to one of them.
type laterLink struct {
	dir, name string
	st        vfs.Stat
}

func (s *syncer) run(ctx context.Context) error {
	top, err := vfs.Lstat(int(s.src.Fd()), "")
	if err != nil {
		return err
	}
	s.mount = top.Mount
	s.slots = make(chan struct{}, runtime.NumCPU())
	s.linked = map[uint64]string{}
	s.blocks = []byte(manifestMagic)
	root := &level{s: s, path: ".", src: s.src}
	old, known := s.old.dir("")
	trusted := known && len(old) == 1 && old[0].ino == top.Ino
	if err := s.dir(ctx, root, trusted); err != nil {
		return err
	}
	if !trusted || old[0].inode != inodeOf(&top) {
		s.markChanged(".")
	}
	s.blocks = append(s.blocks, block("", []named{{"", inodeOf(&top)}})...)
	if err := s.links(ctx); err != nil {
		return err
	}
	return s.finishDirs(ctx)
}

// change must be called before each change of the pool's copy; step names the change for tests that make it
// fail. The first call also calls before, which records that the copy is not complete.
func (s *syncer) change(ctx context.Context, step string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.once.Do(func() {
		s.changed = true
		if s.before != nil {
			s.err = s.before()
		}
	})
	if s.err != nil {
		return s.err
	}
	return fault.Point(ctx, step)
}

// checkSpace returns an error if the disk has too little space for n more bytes of the copy. It is called
// before they are copied, and looks at the disk only after each 16 MiB.
func (s *syncer) checkSpace(n int64) error {
	const often = 16 << 20
	if s.hasRoom == nil || s.since.Add(n) < often {
		return nil
	}
	s.since.Store(0)
	return s.hasRoom(n)
}

func (s *syncer) note(f func(*Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.report)
	if s.progress != nil && s.report.Seen%256 == 0 {
		s.progress(s.report.Progress)
	}
}

func (s *syncer) markChanged(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, path)
}

// A level is one directory of the workspace that a syncer compares with the pool's copy. The directory of the
// copy is opened on demand.
type level struct {
	s    *syncer
	path string
	src  *os.File
	once sync.Once
	fd   *os.File
	err  error
}

func (l *level) dst() (int, error) {
	l.once.Do(func() {
		l.fd, l.err = vfs.OpenBeneath(int(l.s.dst.Fd()), l.path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	})
	if l.err != nil {
		return -1, l.err
	}
	return int(l.fd.Fd()), nil
}

func (l *level) close() {
	if l.fd != nil {
		l.fd.Close()
	}
}

// dir updates the pool's copy of the directory l and of its subdirectories. trusted is set if the entries in
// the manifest, the list of files at the last import, describe this directory, not another one that had its
// name.
func (s *syncer) dir(ctx context.Context, l *level, trusted bool) error {
	defer l.close()
	entries, err := vfs.Entries(int(l.src.Fd()))
	if err != nil {
		return err
	}
	vfs.SortEntries(entries)
	var old []named
	if trusted {
		old, trusted = s.old.dir(l.path)
	}
	now, err := s.entries(ctx, l, entries, old)
	if err != nil {
		return err
	}
	if err := s.prune(ctx, l, now, old, trusted); err != nil {
		return err
	}
	s.mu.Lock()
	s.blocks = append(s.blocks, block(l.path, now)...)
	s.mu.Unlock()
	return nil
}

// entries updates the pool's copies of the given entries of the directory l, and returns the list of them to
// record in the manifest, by which the next import finds changes. old is the list that the last import
// recorded, or nil if that cannot be trusted.
func (s *syncer) entries(ctx context.Context, l *level, entries []vfs.Entry, old []named) (now []named, err error) {
	var beneath crew
	for _, e := range entries {
		var n *named
		if err = ctx.Err(); err == nil {
			n, err = s.entry(ctx, l, e.Name, old, &beneath)
		}
		if err != nil {
			break
		}
		if n != nil {
			now = append(now, *n)
		}
	}
	return now, errors.Join(err, beneath.wait())
}

// entry updates the pool's copy of the entry name of the directory l, and returns its data for the manifest,
// by which the next import finds changes; nil if the entry was deleted or is left out. old is the directory's
// list in the last manifest. Goroutines for subdirectories join the last argument, a crew.
func (s *syncer) entry(ctx context.Context, l *level, name string, old []named, beneath *crew) (*named, error) {
	st, err := vfs.Lstat(int(l.src.Fd()), name)
	if errors.Is(err, os.ErrNotExist) || err == nil && s.skip != nil && s.skip(&st) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	was, known := find(old, name)
	same := known && was == inodeOf(&st)
	if !st.IsDir() {
		n, err := s.file(ctx, l, name, &st, same)
		return &named{name, n}, err
	}
	n := &named{name, inodeOf(&st)}
	known = known && was.ino == st.Ino && was.mode&unix.S_IFMT == unix.S_IFDIR
	return n, s.enter(ctx, l, name, &st, known, known && same, beneath)
}

// A crew is the goroutines that copy the subdirectories of one directory of a workspace, and their errors.
type crew struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (c *crew) do(work func() error) {
	c.wg.Go(func() {
		if err := work(); err != nil {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	})
}

func (c *crew) wait() error {
	c.wg.Wait()
	return errors.Join(c.errs...)
}

// enter updates the pool's copy of the subdirectory name, in another goroutine, which joins the crew, if a
// slot is free. same is set if the copy has this very directory under that name; equal if that also has its
// attributes.
func (s *syncer) enter(ctx context.Context, l *level, name string, st *vfs.Stat, same, equal bool, beneath *crew) error {
	s.note(func(r *Report) { r.Seen++ })
	path := filepath.Join(l.path, name)
	if !same {
		if err := s.makeDir(ctx, l, name); err != nil {
			return err
		}
	}
	if !equal {
		s.markChanged(path)
	}
	if st.Mount != s.mount {
		return nil // another filesystem is mounted there
	}
	src, err := vfs.OpenDir(int(l.src.Fd()), name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the next import finds it deleted
	}
	if err != nil {
		return err
	}
	child := &level{s: s, path: path, src: src}
	work := func() error {
		defer src.Close()
		return s.dir(ctx, child, same)
	}
	select {
	case s.slots <- struct{}{}:
		beneath.do(func() error {
			defer func() { <-s.slots }()
			return work()
		})
		return nil
	default:
		return work()
	}
}

// makeDir makes the directory name in the pool's copy of the workspace's directory l, unless it exists.
func (s *syncer) makeDir(ctx context.Context, l *level, name string) error {
	dst, err := l.dst()
	if err != nil {
		return err
	}
	if err := s.change(ctx, "make a directory"); err != nil {
		return err
	}
	err = unix.Mkdirat(dst, name, 0o700)
	if err == unix.EEXIST {
		st, e := vfs.Lstat(dst, name)
		if e != nil || st.IsDir() {
			return e
		}
		if err = unix.Unlinkat(dst, name, 0); err == nil {
			err = unix.Mkdirat(dst, name, 0o700)
		}
	}
	if err != nil {
		return &os.PathError{Op: "make", Path: filepath.Join(l.path, name), Err: err}
	}
	s.note(func(r *Report) { r.Copied++ })
	return nil
}

// prune deletes entries of the pool's copy of the directory l that the workspace no longer has: those in old,
// the list of the last import, but not in now. (The pool is a btrfs file in which snapfs has a copy of a
// workspace on another filesystem.) If trusted is not set, because old may describe another directory, or the
// last import did not finish, prune lists the copy instead of using old.
func (s *syncer) prune(ctx context.Context, l *level, now, old []named, trusted bool) error {
	var there []string
	if trusted && !s.doubt {
		for _, e := range old {
			there = append(there, e.name)
		}
	} else {
		dst, err := l.dst()
		if err != nil {
			return err
		}
		entries, err := vfs.Entries(dst)
		if err != nil {
			return err
		}
		for _, e := range entries {
			there = append(there, e.Name)
		}
	}
	for _, name := range there {
		if _, keep := find(now, name); keep {
			continue
		}
		dst, err := l.dst()
		if err != nil {
			return err
		}
		if err := s.change(ctx, "delete an entry"); err != nil {
			return err
		}
		if err := removeAll(dst, name); err != nil {
			return err
		}
		s.markChanged(l.path)
		s.note(func(r *Report) { r.Deleted++ })
	}
	return nil
}

func removeAll(dir int, name string) error {
	if err := unix.Unlinkat(dir, name, 0); err == nil || err == unix.ENOENT {
		return nil
	}
	d, err := vfs.OpenDir(dir, ".")
	if err != nil {
		return err
	}
	defer d.Close()
	return os.RemoveAll(filepath.Join(vfs.FDPath(d), name))
}

// finishDirs sets the attributes of directories that changed in the pool's copy, the deepest first, because a
// change in a subdirectory changes the mtime of its parent.
func (s *syncer) finishDirs(ctx context.Context) error {
	paths := slices.Clone(s.dirs)
	slices.Sort(paths)
	paths = slices.Compact(paths)
	slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	if i := slices.Index(paths, "."); i >= 0 {
		paths = append(slices.Delete(paths, i, i+1), ".")
	}
	for _, path := range paths {
		src, err := vfs.OpenBeneath(int(s.src.Fd()), path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // the next import finds it deleted
		}
		if err != nil {
			return err
		}
		dst, err := vfs.OpenBeneath(int(s.dst.Fd()), path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			err = s.change(ctx, "set a directory's attributes")
		}
		var st vfs.Stat
		if err == nil {
			st, err = vfs.Lstat(int(src.Fd()), "")
		}
		if err == nil {
			err = attributes(int(src.Fd()), "", int(dst.Fd()), "", &st)
		}
		src.Close()
		if dst != nil {
			dst.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
