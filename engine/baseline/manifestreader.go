package baseline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A manifestReader reads a workspace once and makes its manifest, the list of its files with the bytes of
// small texts. newManifestReader makes it.
type manifestReader struct {
	ctx     context.Context
	reading *Reading      // nil for UpdateManifest
	count   *atomic.Int64 // how many files it has found, for others; or nil
	texts   int           // how many texts it may read
	partial bool          // it has read no more
	// listed is set for a reader that reads the texts of files changed since then as soon as it finds them, into early,
	// by absolute path.
	listed time.Time
	early  map[string][]byte

	root  string
	top   vfs.Stat
	skip  func(string) bool
	old   *manifest
	now   manifest
	real  RootedReader
	files []foundFile
	found hash.Hash // of all paths
	line  []byte    // the buffer of note, which each call uses again
}

// A foundFile is a file of the workspace, other than a directory, that a manifestReader has found, with the
// metadata by which it recognises a change. It is small, because a start holds one for each file.
type foundFile struct {
	path  string
	ino   uint64
	size  int64
	ctime vfs.Timestamp
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
		early: map[string][]byte{},
		now:   manifest{dir: dir, seen: vfs.Now(), list: Baseline{Dir: dir, Nodes: map[string]Entry{}}}, real: RootedReader{Root: root}, found: sha256.New(),
	}
}

func (r *manifestReader) close() {
	r.real.Close()
	r.real.Root.Close()
}

// leaveOut removes the entries of paths that differ in a later reading of the workspace: somebody changed them in
// between, so their state at the start of the sandbox is not known.
func (r *manifestReader) leaveOut(later *manifestReader) {
	now := make(map[string]foundFile, len(later.files))
	for _, f := range later.files {
		now[f.path] = f
	}
	for _, f := range r.files {
		if now[f.path] != f {
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

// readStates reads the paths and metadata of all files of the workspace, and returns the bytes of small texts that
// the newest manifest does not have. It reads no text if the last reading found the same files. Error: errTooLarge.
func (r *manifestReader) readStates() (texts map[string][]byte, err error) {
	if err := r.readDir("."); err != nil {
		return nil, err
	}
	if confirmed, _ := readConfirmed(r.now.dir); confirmed == r.sum() {
		return nil, nil
	}
	r.old = readManifest(r.now.dir, manifestFile)
	return r.readTexts(r.reuseAll())
}

// read reads the workspace, and reports whether there is a new manifest to save: one without entries if the
// workspace has too many files. If no file differs from the last reading, read only stores the new time in
// confirmedFile and returns false.
func (r *manifestReader) read() bool {
	_, err := r.readStates()
	switch {
	case errors.Is(err, errTooLarge):
		r.empty()
		return true
	case err != nil:
		return false
	case r.old == nil:
		writeConfirmed(r.now.dir, r.sum(), r.now.seen)
		return false
	}
	return true
}

// empty makes the manifest that of a workspace with too many files, which has no entries.
func (r *manifestReader) empty() {
	r.old = readManifest(r.now.dir, manifestFile)
	r.now.list.Nodes, r.partial = map[string]Entry{}, false
}

// reuseAll takes over the old entries of all files that have not changed since, and returns the other files,
// the newest first.
func (r *manifestReader) reuseAll() (fresh []foundFile) {
	for _, f := range r.files {
		if _, read := r.now.list.Nodes[filepath.Join(r.root, f.path)]; !read && !r.reuse(&f) {
			fresh = append(fresh, f)
		}
	}
	slices.SortFunc(fresh, func(a, b foundFile) int { return b.ctime.Time().Compare(a.ctime.Time()) })
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
		at := e.Name
		if path != "." {
			at = path + "/" + e.Name
		}
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
		r.add(at, &st)
	}
	for _, at := range below {
		if err := r.readDir(at); err != nil {
			return err
		}
	}
	// Last, so that a name that came meanwhile has changed its time.
	if st, err := r.real.stat(path); err == nil {
		r.note(path, &st)
	}
	n, err := r.real.Node(path)
	if err == nil && n != nil {
		r.now.list.Nodes[filepath.Join(r.root, path)] = Entry{Node: n}
	}
	return nil
}

// add adds a file that is no directory to the files that the reader has found. It reads the text of one that has
// changed since r.listed.
func (r *manifestReader) add(path string, st *vfs.Stat) {
	r.note(path, st)
	f := foundFile{path, st.Ino, st.Size, st.CTime}
	r.files = append(r.files, f)
	if !r.listed.IsZero() && len(r.early) < r.texts && !vfs.ChangedBefore(st.CTime.Time(), r.listed) {
		r.readFile(&f, r.early)
	}
	if r.count != nil {
		r.count.Store(int64(len(r.files)))
	}
	if r.reading != nil && len(r.files) == quickLook+1 {
		close(r.reading.many)
	}
	if r.reading != nil && len(r.files) == quickNames+1 {
		r.reading.enough()
	}
}

// note adds the path and metadata of a file to the hash of the reading, by which the next reading recognises
// that no file has changed.
func (r *manifestReader) note(path string, st *vfs.Stat) {
	size := uint64(st.Size)
	if st.IsDir() {
		size = 0
	}
	line := append(r.line[:0], path...)
	for _, n := range []uint64{0, st.Ino, size, uint64(st.CTime.Sec), uint64(st.CTime.Nsec), uint64(st.MTime.Sec), uint64(st.MTime.Nsec)} {
		line = binary.LittleEndian.AppendUint64(line, n)
	}
	r.found.Write(line)
	r.line = line
}

// reuse copies the entry of a file from the last manifest, the list of the workspace's files, into the new
// one if the file has not changed since. It reports whether it has.
func (r *manifestReader) reuse(f *foundFile) bool {
	abs := filepath.Join(r.root, f.path)
	e, ok := r.old.list.Nodes[abs]
	if !ok || e.Node == nil || e.Node.Ino != f.ino || !e.Node.CTime.Equal(f.ctime.Time()) || e.Node.Size != f.size {
		return false
	}
	if e.Data != "" {
		r.now.list.bytes += f.size
	}
	r.now.list.Nodes[abs] = e
	return true
}

// readTexts adds entries for files, and returns the bytes of small texts among the first r.texts of them, and those in
// r.early, by absolute path. Of the others it reads none, and sets partial. For the start of a sandbox the texts are in
// memory alone, since storing them takes longer.
func (r *manifestReader) readTexts(fresh []foundFile) (texts map[string][]byte, err error) {
	texts = maps.Clone(r.early)
	for i, f := range fresh {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		into := texts
		if i >= r.texts {
			into = nil
		}
		r.readFile(&f, into)
	}
	return texts, nil
}

// readFile adds an entry for a file and, if it is a small text, stores its bytes, for the start of a sandbox in texts.
// If texts is nil it does not read them, and sets partial.
func (r *manifestReader) readFile(f *foundFile, texts map[string][]byte) {
	n, err := r.real.Node(f.path)
	if err != nil || n == nil {
		return // it has gone, or this user may not read it
	}
	abs := filepath.Join(r.root, f.path)
	r.now.list.Nodes[abs] = Entry{Node: n}
	switch {
	case !isSmall(n) || r.now.list.bytes+n.Size > maxManifestBytes:
	case texts == nil:
		r.partial = true
	case r.reading == nil:
		r.now.storeText(abs, textOf(&r.real, f.path, n))
	default:
		texts[abs] = textOf(&r.real, f.path, n)
	}
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
