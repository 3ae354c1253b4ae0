package baseline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A manifest is what a workspace on a live base held when it was last read: the
// nodes of all paths and the bytes of small texts. All sandboxes of the workspace
// share it. It tells an original that changed while a command ran, before anybody
// recorded it. It is a directory below manifestsDir of the state directory with
// the file manifestFile, which is replaced atomically:
//
//	snapfs manifest 1
//	2026-11-25T03:00:00.123456789Z     when the reading began
//
// and then a list as in a baseline; and a file for each text, named by its
// SHA-256. A list without entries is that of a workspace that is too large.
type manifest struct {
	dir  string
	seen time.Time
	list Baseline
}

const (
	manifestsDir = "manifests"
	manifestFile = "manifest"
	largeFile    = "large" // see NoteLarge
	manifestHead = "snapfs manifest 1\n"
	// Limits of a manifest: entries, bytes of one text, bytes of all.
	maxManifest      = 100_000
	maxManifestText  = 64 << 10
	maxManifestBytes = 32 << 20
	// manifestRetry is how long a workspace that was too large is not read again.
	manifestRetry = time.Hour
	// manifestUnused is how long a manifest stays after it was written, without a sandbox.
	manifestUnused = time.Hour
	// largeRetry is how long no command looks for the drift of a workspace with a note.
	largeRetry = 10 * time.Minute
)

// errTooLarge ends the reading of a large workspace.
var errTooLarge = errors.New("too many files")

// manifestDir returns the directory of a workspace's manifest.
func (bl *Recorder) manifestDir(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return filepath.Join(bl.cat.Dir(), manifestsDir, hex.EncodeToString(sum[:16]))
}

// readManifest reads the manifest of a workspace; one without entries if there is
// none that can be read.
func (bl *Recorder) readManifest(workspace string) *manifest {
	m := &manifest{dir: bl.manifestDir(workspace)}
	m.list = Baseline{Dir: m.dir, Nodes: map[string]Entry{}}
	data, err := os.ReadFile(filepath.Join(m.dir, manifestFile))
	body, ok := strings.CutPrefix(string(data), manifestHead)
	when, body, whole := strings.Cut(body, "\n")
	if err != nil || !ok || !whole {
		return m
	}
	seen, err := time.Parse(time.RFC3339Nano, when)
	if err == nil && m.list.decode([]byte(body)) == nil {
		m.seen = seen
	} else {
		m.list.Nodes = map[string]Entry{}
	}
	return m
}

// UpdateManifest reads the workspace of a sandbox again, unless its manifest is
// younger than the sandbox's window. It is for the background of a running
// command. It reports no error: without a manifest, some originals are not known.
// Cost: a statx of each file, and reading each changed small text.
func (bl *Recorder) UpdateManifest(ctx context.Context, rec *catalog.Record) {
	t := workspaceTree(rec)
	if t == nil || t.Frozen {
		return
	}
	old := bl.readManifest(rec.Workspace)
	large := !old.seen.IsZero() && len(old.list.Nodes) == 0 && time.Since(old.seen) < manifestRetry
	if large || old.seen.After(bl.Since(rec, t)) || os.MkdirAll(old.dir, 0o700) != nil {
		return
	}
	lock, err := os.Open(old.dir)
	if err != nil {
		return
	}
	defer vfs.Unlock(lock)
	if vfs.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return // another supervisor reads it
	}
	root, err := OpenRoot(rec.Workspace)
	if err != nil {
		return
	}
	defer root.Close()
	b, err := bl.host.BackendOf(ctx, *t)
	if err != nil {
		return
	}
	top, err := vfs.Lstat(int(root.Fd()), "")
	if err != nil {
		return
	}
	r := manifestReader{
		ctx: ctx, root: rec.Workspace, top: top, skip: bl.host.Skip(b, rec.Workspace), old: old,
		now: manifest{dir: old.dir, seen: vfs.Now(), list: Baseline{Dir: old.dir, Nodes: map[string]Entry{}}}, real: RootedReader{Root: root},
	}
	defer r.real.Close()
	if err := r.readDir("."); errors.Is(err, errTooLarge) {
		r.now.list.Nodes = map[string]Entry{}
	} else if err != nil {
		return
	}
	r.now.save()
}

// workspaceTree returns the innermost tree that holds the workspace, nil for none.
func workspaceTree(rec *catalog.Record) (found *catalog.Tree) {
	for i := range rec.Trees {
		t := &rec.Trees[i]
		rel, err := filepath.Rel(t.Path, rec.Workspace)
		if err == nil && filepath.IsLocal(rel) && (found == nil || len(t.Path) > len(found.Path)) {
			found = t
		}
	}
	return found
}

// manifestReader reads a workspace.
type manifestReader struct {
	ctx  context.Context
	root string
	top  vfs.Stat
	skip func(string) bool
	old  *manifest
	now  manifest
	real RootedReader
}

// readDir reads a directory and everything below it. A directory that this user
// may not read gets no entry, so that nothing is known of it.
func (r *manifestReader) readDir(path string) error {
	dir, err := r.real.Dir(path)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	list, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	vfs.SortEntries(list)
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
		if len(r.now.list.Nodes) >= maxManifest {
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
	n, err := r.real.Node(path)
	if err == nil && n != nil {
		r.now.list.Set(filepath.Join(r.root, path), Entry{Node: n})
	}
	return nil
}

// add adds a node that is no directory.
func (r *manifestReader) add(path string, st *vfs.Stat) {
	abs := filepath.Join(r.root, path)
	if e, ok := r.old.list.Nodes[abs]; ok && e.Node != nil && e.Node.Ino == st.Ino && e.Node.CTime.Equal(st.CTime.Time()) && e.Node.Size == st.Size {
		if e.Data != "" {
			r.now.list.bytes += st.Size
		}
		r.now.list.Nodes[abs] = e
		return
	}
	n, err := r.real.Node(path)
	if err != nil || n == nil {
		return
	}
	e := Entry{Node: n}
	if n.Mode.IsRegular() && n.Size <= maxManifestText && r.now.list.bytes+n.Size <= maxManifestBytes {
		k := pathRecorder{baseline: &r.now.list, base: LiveBase{Real: r.real}}
		e.Data, _ = k.storeText(path, n) // without the bytes
	}
	r.now.list.Nodes[abs] = e
}

// save replaces the manifest, and removes texts that it does not name.
func (m *manifest) save() {
	data := fmt.Appendf([]byte(manifestHead), "%s\n", m.seen.UTC().Format(time.RFC3339Nano))
	path := filepath.Join(m.dir, manifestFile)
	if os.WriteFile(path+".new", append(data, m.list.encode()...), 0o600) != nil || os.Rename(path+".new", path) != nil {
		return
	}
	used := map[string]bool{manifestFile: true, largeFile: true}
	for _, e := range m.list.Nodes {
		used[e.Data] = true
	}
	list, _ := os.ReadDir(m.dir)
	for _, e := range list {
		if !used[e.Name()] {
			_ = os.Remove(filepath.Join(m.dir, e.Name())) // the next update retries
		}
	}
}

// original returns the state of a path at an instant, with the bytes of a small
// text; false if the manifest does not know it.
func (m *manifest) original(abs string, since time.Time) (Entry, []byte, bool) {
	if m.seen.Before(since) {
		return Entry{}, nil, false
	}
	if e, ok := m.list.Nodes[abs]; ok {
		if !e.Node.CTime.Before(since) {
			return Entry{}, nil, false
		}
		return e, m.list.text(&e), true
	}
	for dir := filepath.Dir(abs); dir != "/"; dir = filepath.Dir(dir) {
		if e, ok := m.list.Nodes[dir]; ok {
			return Entry{}, nil, e.Node.Mode.IsDir() && e.Node.MTime.Before(since)
		}
	}
	return Entry{}, nil, false
}

// NoteLarge records that a search of a workspace for drift took too long, so that for
// largeRetry no command tries. It reports no error: without the note, each tries.
func (bl *Recorder) NoteLarge(workspace string) {
	dir := bl.manifestDir(workspace)
	if os.MkdirAll(dir, 0o700) == nil {
		_ = os.WriteFile(filepath.Join(dir, largeFile), nil, 0o600)
	}
}

// IsLarge reports whether a workspace has a note of NoteLarge that is still valid.
func (bl *Recorder) IsLarge(workspace string) bool {
	st, err := os.Stat(filepath.Join(bl.manifestDir(workspace), largeFile))
	return err == nil && time.Since(st.ModTime()) < largeRetry
}

// PruneManifests removes the manifests of workspaces that have no sandbox, and had none lately:
// runs one after another share a manifest.
func (bl *Recorder) PruneManifests() {
	list, err := os.ReadDir(filepath.Join(bl.cat.Dir(), manifestsDir))
	if err != nil || len(list) == 0 {
		return
	}
	all, failures := bl.cat.List()
	if len(failures) > 0 {
		return
	}
	used := map[string]bool{}
	for _, rec := range all {
		used[filepath.Base(bl.manifestDir(rec.Workspace))] = true
	}
	for _, e := range list {
		if info, err := e.Info(); !used[e.Name()] && err == nil && time.Since(info.ModTime()) > manifestUnused {
			_ = os.RemoveAll(filepath.Join(bl.cat.Dir(), manifestsDir, e.Name())) // the next call retries
		}
	}
}
