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
	large       atomic.Bool
	// began is when the reading, or another supervisor's later one, began, in nanoseconds; 0 before that.
	began atomic.Int64
}

const (
	// quickNames is the number of files up to which the start of a sandbox waits until its workspace is
	// listed. quickTexts is how many small texts, the newest, the start waits for.
	quickNames = 5000
	quickTexts = 500
	// quickPatience is how long the start of a sandbox waits at most until its workspace is listed. On a
	// quiet machine the listing ends before the container has started.
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
	own, r := *rec, &Reading{quick: make(chan struct{}), done: make(chan struct{})}
	r.enough = sync.OnceFunc(func() { close(r.quick) })
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.done)
		defer r.enough()
		bl.readWorkspace(ctx, &own, r)
	}()
	return r
}

// await waits until the states of all files of the workspace are in memory, for quickPatience at most. It
// returns when the reading began, in Unix nanoseconds, 0 if it has not yet.
func (r *Reading) await(ctx context.Context) int64 {
	if r == nil {
		return 0
	}
	late := time.NewTimer(quickPatience)
	defer late.Stop()
	select {
	case <-r.quick:
	case <-late.C:
	case <-ctx.Done():
	}
	return r.began.Load()
}

// Stop waits until the reading of the workspace has ended. It cancels the reading of a large workspace, and
// one that still waits for another sandbox's process that reads the same workspace.
func (r *Reading) Stop() {
	if r == nil {
		return
	}
	if r.large.Load() || r.began.Load() == 0 {
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
	bl.readWorkspace(ctx, rec, nil)
}

// readWorkspace lists the files of a sandbox's workspace in a manifest. It does the work of UpdateManifest,
// for which r is nil, and of the Reading r, which runs while a container starts.
func (bl *Recorder) readWorkspace(ctx context.Context, rec *catalog.Record, r *Reading) {
	t := workspaceTree(rec)
	if t == nil || t.Frozen {
		return
	}
	began, dir := vfs.Now(), bl.manifestDir(rec.Workspace)
	lock := lockManifest(ctx, dir, syscall.LOCK_EX, readingPatience)
	if lock == nil {
		return
	}
	defer vfs.Unlock(lock)
	seen, empty := manifestSeen(dir)
	if empty && time.Since(seen) < manifestRetry {
		return // too large
	}
	since := began
	if r == nil {
		since = bl.Since(rec, t)
	}
	if r != nil && !seen.Before(since) {
		r.began.Store(seen.UnixNano())
		return
	}
	_, err := os.Lstat(filepath.Join(dir, partialFile))
	partial := err == nil
	if own := bl.readWindow(rec).manifest; r == nil && (!seen.Before(since) || own != 0 && own <= seen.UnixNano()) {
		if partial {
			bl.fillManifest(ctx, rec.Workspace)
		}
		return
	}
	m := bl.newManifestReader(ctx, rec, t)
	if m == nil {
		return
	}
	defer m.real.Close()
	defer m.real.Root.Close()
	m.partial = partial
	if r != nil {
		m.reading, m.texts = r, quickTexts
		r.began.Store(m.now.seen.UnixNano())
	}
	if m.read() && m.now.save(bl.keepEarlier(rec.Workspace, m.old), m.partial) {
		writeAgain(dir, m.sum(), m.now.seen)
	}
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

// sum returns the hash, in hexadecimal, of the paths and metadata of all files that the reader has found in
// the workspace. Two readings with the same hash found the same files.
func (r *manifestReader) sum() string { return hex.EncodeToString(r.found.Sum(nil)) }

// read reads the workspace, and reports whether there is a new manifest to save: one without entries if the
// workspace has too many files. If no file differs from the last reading, read only stores the new time in
// againFile and returns false.
func (r *manifestReader) read() bool {
	err := r.readDir(".")
	if sum, _ := readAgain(r.now.dir); err == nil && sum == r.sum() {
		writeAgain(r.now.dir, sum, r.now.seen)
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
	var fresh []foundFile
	for _, f := range r.files {
		if !r.reuse(&f) {
			fresh = append(fresh, f)
		}
	}
	slices.SortFunc(fresh, func(a, b foundFile) int { return b.st.CTime.Time().Compare(a.st.CTime.Time()) })
	return r.readTexts(fresh) == nil
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
		if r.files = append(r.files, foundFile{at, st}); len(r.files) > quickNames && r.reading != nil {
			r.reading.large.Store(true)
			r.reading.enough()
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

// readTexts adds the files fresh, which are new or changed and sorted newest first, to the manifest, with the
// bytes of the first small texts. While a sandbox's start waits for the reading, it holds the texts in
// memory; it writes them to disk afterwards.
func (r *manifestReader) readTexts(fresh []foundFile) error {
	texts := map[string][]byte{}
	for i, f := range fresh {
		if err := r.ctx.Err(); err != nil {
			return err
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
	if r.reading != nil {
		r.reading.enough()
	}
	for abs, data := range texts {
		r.now.storeText(abs, data)
	}
	return nil
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
