package baseline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Reading lists the files of a sandbox's workspace in a manifest, in the background, while the sandbox's
// container starts. From the manifest snapfs later knows the original of a file that the user changes while
// the command runs. The start waits for the Reading only at its end, and only in a workspace of at most
// quickNames files, see [Recorder.OpenWindow].
//
// The methods of a nil Reading do nothing.
type Reading struct {
	cancel context.CancelFunc
	// quick is closed when the states of all files and the newest texts are in memory, or the start need not wait.
	quick, done chan struct{}
	enough      func() // closes quick
	// files is how many files have been found.
	files atomic.Int64
	// open is closed when the sandbox's window has begun, and stopped when the reading is no longer needed.
	open, stopped chan struct{}
	stop          func() // closes stopped
}

const (
	// quickNames is the number of files up to which the start of a sandbox waits until its workspace is
	// listed. quickTexts is how many small texts, the newest, the start waits for.
	quickNames = 5000
	quickTexts = 500
	// quickLook is the size of a workspace in which a start waits until the manifest is stored.
	quickLook = 300
	// quickPatience bounds each wait. On a quiet machine the reading ends before the container has started.
	quickPatience = 10 * time.Millisecond
	// readingPatience is how long the listing of a workspace's files, in the background, waits for another
	// sandbox's process that lists the same workspace.
	readingPatience = 30 * time.Second
)

// StartReading starts to list the files of a sandbox's workspace in a manifest, while nothing runs in the
// sandbox. It returns nil for a frozen base, which needs no manifest. The caller calls Stop. Cost: that of
// UpdateManifest, in a goroutine.
func (bl *Recorder) StartReading(ctx context.Context, rec *catalog.Record) *Reading {
	if t := workspaceTree(rec); rec.Ephemeral || t == nil || t.Frozen {
		return nil
	}
	own, r := *rec, &Reading{quick: make(chan struct{}), done: make(chan struct{}), open: make(chan struct{}), stopped: make(chan struct{})}
	r.enough = sync.OnceFunc(func() { close(r.quick) })
	r.stop = sync.OnceFunc(func() { close(r.stopped) })
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.done)
		defer r.enough()
		bl.readStart(ctx, &own, r)
	}()
	return r
}

// opened notes that the sandbox's window has begun. In a small workspace it waits until the manifest is
// stored, for quickPatience at most, so that commands begin after that.
func (r *Reading) opened(ctx context.Context) {
	if r == nil {
		return
	}
	close(r.open)
	if r.files.Load() <= quickLook {
		r.wait(ctx, r.done)
	}
}

// awaitOpened waits until the sandbox's window has begun; it returns false if that will not happen.
func (r *Reading) awaitOpened(ctx context.Context) bool {
	select {
	case <-r.open:
		return true
	case <-r.stopped:
	case <-ctx.Done():
	}
	select {
	case <-r.open:
		return true
	default:
		return false
	}
}

// await waits until the states of all files are in memory, for quickPatience at most.
func (r *Reading) await(ctx context.Context) {
	if r != nil {
		r.wait(ctx, r.quick)
	}
}

// wait waits until a channel or the reading's end is reached, for quickPatience at most.
func (r *Reading) wait(ctx context.Context, until chan struct{}) {
	late := time.NewTimer(quickPatience)
	defer late.Stop()
	select {
	case <-until:
	case <-r.done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// Stop cancels the reading of a large workspace, and waits until the reading has ended.
func (r *Reading) Stop() {
	if r == nil {
		return
	}
	r.stop()
	if r.files.Load() > quickNames {
		r.cancel()
	}
	<-r.done
	r.cancel()
}

// UpdateManifest lists the files of a sandbox's workspace in a manifest, from which snapfs later knows their
// originals. If the newest manifest is recent enough for the sandbox, it only adds missing texts. A
// supervisor calls it in the background of a running command. It reports no error: without a manifest, some
// originals are not known. Cost: a statx of each file, and reading each changed small text.
func (bl *Recorder) UpdateManifest(ctx context.Context, rec *catalog.Record) {
	t := workspaceTree(rec)
	if t == nil || t.Frozen {
		return
	}
	dir := bl.manifestDir(rec.Workspace)
	lock := lockManifest(ctx, dir, syscall.LOCK_EX, readingPatience)
	if lock == nil {
		return
	}
	defer vfs.Unlock(lock)
	seen, large := manifestSeen(dir)
	if large && time.Since(seen) < manifestRetry {
		return
	}
	partial := isPartial(dir)
	if !seen.Before(bl.Since(rec, t)) {
		if partial {
			bl.fillManifest(ctx, rec.Workspace)
		}
		return
	}
	m := bl.newManifestReader(ctx, rec, t)
	if m == nil {
		return
	}
	defer m.close()
	m.partial = partial
	if m.read() && m.now.save(bl.keepEarlier(rec.Workspace, m.old), m.partial) {
		writeConfirmed(dir, m.sum(), m.now.seen)
	}
}

// readStart reads the workspace of a sandbox that starts. A file may change between its reading and the
// beginning of the sandbox's window, and its state at the latter is the original. So readStart looks at all
// files once more after that, and leaves out those that have changed: their originals are not known.
func (bl *Recorder) readStart(ctx context.Context, rec *catalog.Record, r *Reading) {
	t, dir := workspaceTree(rec), bl.manifestDir(rec.Workspace)
	if seen, large := manifestSeen(dir); large && time.Since(seen) < manifestRetry {
		return
	}
	m := bl.newManifestReader(ctx, rec, t)
	if m == nil {
		return
	}
	defer m.close()
	m.partial, m.reading, m.texts = isPartial(dir), r, quickTexts
	err := m.readDir(".")
	confirmed, _ := readConfirmed(dir)
	same := err == nil && confirmed == m.sum()
	var texts map[string][]byte
	if err == nil && !same {
		m.old = readManifest(dir, manifestFile)
		if texts, err = m.readTexts(m.reuseAll()); err != nil {
			return
		}
	}
	r.enough()
	if err != nil && !errors.Is(err, errTooLarge) || !r.awaitOpened(ctx) {
		return
	}
	lock := lockManifest(ctx, dir, syscall.LOCK_EX, readingPatience)
	if lock == nil {
		return
	}
	defer vfs.Unlock(lock)
	if err != nil { // too large
		m.now.list.Nodes, m.partial = map[string]Entry{}, false
		m.now.seen = vfs.Now()
		m.now.save(bl.keepEarlier(rec.Workspace, readManifest(dir, manifestFile)), m.partial)
		return
	}
	again := bl.newManifestReader(ctx, rec, t)
	if again == nil {
		return
	}
	defer again.close()
	if again.readDir(".") != nil {
		return
	}
	m.now.seen = again.now.seen
	sum := m.sum()
	confirmed, _ = readConfirmed(dir)
	if same && confirmed == sum && again.sum() == sum {
		writeConfirmed(dir, sum, m.now.seen)
		return
	}
	if m.old == nil {
		m.old = readManifest(dir, manifestFile)
		m.reuseAll() // of the others, the states at the beginning are not known
	}
	if again.sum() != sum {
		m.leaveOut(again)
		sum = "" // no later reading finds just these entries
	}
	for abs, data := range texts {
		if _, ok := m.now.list.Nodes[abs]; ok {
			m.now.storeText(abs, data)
		}
	}
	if m.now.save(bl.keepEarlier(rec.Workspace, readManifest(dir, manifestFile)), m.partial) {
		writeConfirmed(dir, sum, m.now.seen)
	}
}

// isPartial reports whether the newest manifest in a directory lacks texts.
func isPartial(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, partialFile))
	return err == nil
}

// lockManifest locks the directory with the manifests (lists of files) of a workspace; closing the file
// releases the lock. how is the kind of lock of flock(2). It returns nil if another process still has the
// lock after patience.
func lockManifest(ctx context.Context, dir string, how int, patience time.Duration) *os.File {
	if os.MkdirAll(dir, 0o700) != nil {
		return nil
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = poll.Until(soon, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		return vfs.Flock(lock, how|syscall.LOCK_NB) == nil, nil
	})
	if err != nil {
		lock.Close()
		return nil
	}
	return lock
}

// A manifestReader reads a workspace once and makes its manifest, the list of its files with the bytes of
// small texts. readWorkspace makes it.
type manifestReader struct {
	ctx     context.Context
	reading *Reading // nil for UpdateManifest
	texts   int      // how many texts it may read
	partial bool     // it has read no more

	root  string
	top   vfs.Stat
	skip  func(string) bool
	old   *manifest
	now   manifest
	real  RootedReader
	files []foundFile
	found hash.Hash // of all paths
}

// A foundFile is a file of the workspace, other than a directory, that a manifestReader has found, with its
// metadata.
type foundFile struct {
	path string
	st   vfs.Stat
}

// newManifestReader returns a reader that lists the files of a sandbox's workspace, which lies in the tree t;
// nil if the workspace cannot be opened. The caller closes its real.Root.
func (bl *Recorder) newManifestReader(ctx context.Context, rec *catalog.Record, t *catalog.Tree) *manifestReader {
	b, err := bl.host.BackendOf(ctx, *t)
	if err != nil {
		return nil
	}
	root, err := OpenRoot(rec.Workspace)
	if err != nil {
		return nil
	}
	top, err := vfs.Lstat(int(root.Fd()), "")
	if err != nil {
		root.Close()
		return nil
	}
	dir := bl.manifestDir(rec.Workspace)
	return &manifestReader{
		ctx: ctx, texts: maxManifest, root: rec.Workspace, top: top, skip: bl.host.Skip(b, rec.Workspace),
		now: manifest{dir: dir, seen: vfs.Now(), list: Baseline{Dir: dir, Nodes: map[string]Entry{}}}, real: RootedReader{Root: root}, found: sha256.New(),
	}
}

func (r *manifestReader) close() {
	r.real.Close()
	r.real.Root.Close()
}

// leaveOut removes the entries of paths that differ in a later reading.
func (r *manifestReader) leaveOut(later *manifestReader) {
	now := make(map[string]vfs.Stat, len(later.files))
	for _, f := range later.files {
		now[f.path] = f.st
	}
	for _, f := range r.files {
		if st, ok := now[f.path]; !ok || st.Ino != f.st.Ino || st.Size != f.st.Size || st.CTime != f.st.CTime {
			delete(r.now.list.Nodes, filepath.Join(r.root, f.path))
		}
	}
	for abs, e := range r.now.list.Nodes {
		if e.Node == nil || !e.Node.Mode.IsDir() {
			continue
		}
		if n := later.now.list.Nodes[abs].Node; n == nil || n.Ino != e.Node.Ino || !n.CTime.Equal(e.Node.CTime) {
			delete(r.now.list.Nodes, abs)
		}
	}
}

// sum returns the hash, in hexadecimal, of the paths and metadata of all files that the reader has found in
// the workspace. Two readings with the same hash found the same files.
func (r *manifestReader) sum() string { return hex.EncodeToString(r.found.Sum(nil)) }

// read reads the workspace, and reports whether there is a new manifest to save: one without entries if the
// workspace has too many files. If no file differs from the last reading, read only stores the new time in
// againFile and returns false.
func (r *manifestReader) read() bool {
	err := r.readDir(".")
	if sum, _ := readConfirmed(r.now.dir); err == nil && sum == r.sum() {
		writeConfirmed(r.now.dir, sum, r.now.seen)
		return false
	}
	r.old = readManifest(r.now.dir, manifestFile)
	if errors.Is(err, errTooLarge) {
		r.now.list.Nodes, r.partial = map[string]Entry{}, false
		return true
	}
	if err != nil {
		return false
	}
	_, err = r.readTexts(r.reuseAll())
	return err == nil
}

// reuseAll takes over the old entries of all files that have not changed since, and returns the other files,
// the newest first.
func (r *manifestReader) reuseAll() (fresh []foundFile) {
	for _, f := range r.files {
		if !r.reuse(&f) {
			fresh = append(fresh, f)
		}
	}
	slices.SortFunc(fresh, func(a, b foundFile) int { return b.st.CTime.Time().Compare(a.st.CTime.Time()) })
	return fresh
}

// readDir adds a directory of the workspace, and everything in it, to the files that the reader has found. A
// directory that this user may not read gets no entry, so that snapfs assumes no original in it.
func (r *manifestReader) readDir(path string) error {
	dir, err := r.real.Dir(path)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	list, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	var below []string
	for _, e := range list {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		st, err := vfs.Lstat(int(dir.Fd()), e.Name)
		at := filepath.Join(path, e.Name)
		if err != nil || st.Mount != r.top.Mount || st.Dev != r.top.Dev || r.skip(at) {
			continue
		}
		if st.IsDir() {
			below = append(below, at)
			continue
		}
		if len(r.files) >= maxManifest {
			return errTooLarge
		}
		r.note(at, &st)
		r.files = append(r.files, foundFile{at, st})
		if r.reading != nil {
			r.reading.files.Store(int64(len(r.files)))
			if len(r.files) > quickNames {
				r.reading.enough()
			}
		}
	}
	for _, at := range below {
		if err := r.readDir(at); err != nil {
			return err
		}
	}
	// Last, so that a name that came meanwhile has changed its time.
	if st, err := statIn(&r.real, path); err == nil {
		r.note(path, &st)
	}
	n, err := r.real.Node(path)
	if err == nil && n != nil {
		r.now.list.Nodes[filepath.Join(r.root, path)] = Entry{Node: n}
	}
	return nil
}

// note adds the path and metadata of a file to the hash of the reading, by which the next reading recognises
// that no file has changed.
func (r *manifestReader) note(path string, st *vfs.Stat) {
	size := uint64(st.Size)
	if st.IsDir() {
		size = 0
	}
	line := append(make([]byte, 0, len(path)+64), path...)
	for _, n := range []uint64{0, st.Ino, size, uint64(st.CTime.Sec), uint64(st.CTime.Nsec), uint64(st.MTime.Sec), uint64(st.MTime.Nsec)} {
		line = binary.LittleEndian.AppendUint64(line, n)
	}
	r.found.Write(line)
}

// reuse copies the entry of a file from the last manifest, the list of the workspace's files, into the new
// one if the file has not changed since. It reports whether it has.
func (r *manifestReader) reuse(f *foundFile) bool {
	abs := filepath.Join(r.root, f.path)
	e, ok := r.old.list.Nodes[abs]
	if !ok || e.Node == nil || e.Node.Ino != f.st.Ino || !e.Node.CTime.Equal(f.st.CTime.Time()) || e.Node.Size != f.st.Size {
		return false
	}
	if e.Data != "" {
		r.now.list.bytes += f.st.Size
	}
	r.now.list.Nodes[abs] = e
	return true
}

// readTexts adds entries for files, and returns the bytes of small texts among the first of them, by absolute
// path. For the start of a sandbox they are in memory alone, since storing them takes longer.
func (r *manifestReader) readTexts(fresh []foundFile) (texts map[string][]byte, err error) {
	texts = map[string][]byte{}
	for i, f := range fresh {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		n, err := r.real.Node(f.path)
		if err != nil || n == nil {
			continue // it has gone, or this user may not read it
		}
		abs := filepath.Join(r.root, f.path)
		r.now.list.Nodes[abs] = Entry{Node: n}
		switch {
		case !isSmall(n) || r.now.list.bytes+n.Size > maxManifestBytes:
		case i >= r.texts:
			r.partial = true
		case r.reading == nil:
			r.now.storeText(abs, textOf(&r.real, f.path, n))
		default:
			texts[abs] = textOf(&r.real, f.path, n)
		}
	}
	return texts, nil
}

// fillManifest adds small texts that the newest manifest of a workspace lacks, because a sandbox's start
// could not wait for them, if the files have not changed since. The caller holds the lock of the manifest.
func (bl *Recorder) fillManifest(ctx context.Context, workspace string) {
	m := readManifest(bl.manifestDir(workspace), manifestFile)
	root, err := OpenRoot(workspace)
	if err != nil || len(m.list.Nodes) == 0 {
		return
	}
	defer root.Close()
	real := RootedReader{Root: root}
	defer real.Close()
	for abs, e := range m.list.Nodes {
		if ctx.Err() != nil {
			return
		}
		path, inside := strings.CutPrefix(abs, workspace+"/")
		if inside && e.Data == "" && e.Node != nil && isSmall(e.Node) && m.list.bytes+e.Node.Size <= maxManifestBytes {
			m.storeText(abs, textOf(&real, path, e.Node))
		}
	}
	m.save(earlierNames(m.dir), false)
}

// isSmall reports whether a file is regular and small enough that a manifest, the list of a workspace's
// files, stores its bytes.
func isSmall(n *diff.Node) bool { return n.Mode.IsRegular() && n.Size <= maxManifestText }

// textOf returns the bytes of the file at path in the real tree. It returns nil if the file is no small text,
// or is not the file n any more (by inode, size and change time).
func textOf(real *RootedReader, path string, n *diff.Node) []byte {
	data, st := readText(real, path)
	if int64(len(data)) != n.Size || st.Ino != n.Ino || !st.CTime.Time().Equal(n.CTime) {
		return nil
	}
	return data
}

// storeText stores data, the bytes of the file at the absolute path abs, for its entry in the manifest. It
// does nothing if data is nil.
func (m *manifest) storeText(abs string, data []byte) {
	if data == nil {
		return
	}
	if name, err := m.list.Store(data, nil); err == nil {
		e := m.list.Nodes[abs]
		e.Data = name
		m.list.Nodes[abs] = e
	}
}

// readText reads a small text file and returns its bytes, with its metadata after the read. It returns nil if
// the file is no text, is larger than maxText, or cannot be read.
func readText(l *RootedReader, path string) ([]byte, vfs.Stat) {
	f, err := l.Open(path)
	if err != nil {
		return nil, vfs.Stat{}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText+1))
	st, serr := vfs.Lstat(int(f.Fd()), "")
	if err != nil || serr != nil || len(data) > maxText || slices.Contains(data, 0) {
		return nil, vfs.Stat{}
	}
	return data, st
}
