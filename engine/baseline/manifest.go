package baseline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A manifest is the state of a workspace on a live base when it was last read: the nodes of all paths and the
// bytes of small texts. All sandboxes of the workspace share it. From it comes the original of a file that
// somebody changed in the real tree while a command ran, before the original was stored. On disk it is a
// directory in manifestsDir of the state directory, with the file manifestFile, which is replaced atomically:
//
//	snapfs manifest 1
//	2026-11-25T03:00:00.123456789Z     when the reading began
//
// and then a list as in a baseline; and a file for each text, named by its SHA-256. A list without entries
// means that the workspace is too large.
//
// The manifest of an earlier time stays as manifestFile, a hyphen and that time, while a sandbox began to run
// before that and no later manifest is early enough for it.
type manifest struct {
	dir  string
	seen time.Time
	size int // bytes of its file
	list Baseline
}

const (
	manifestsDir = "manifests"
	manifestFile = "manifest"
	largeFile    = "large" // see NoteLarge
	slowFile     = "slow"  // the workspace was not read before a command, see startManifest
	manifestHead = "snapfs manifest 1\n"
	// The limits of a manifest, the list of a workspace's files: the number of entries, the bytes of one
	// stored text, and those of all. A larger workspace has no manifest, and further texts are not stored.
	maxManifest      = 100_000
	maxManifestText  = 64 << 10
	maxManifestBytes = 32 << 20
	// quickNames, quickTexts and quickList are the limits of a workspace whose manifest, the list of its
	// files, is updated before a command starts, since that delays the command: the number of entries, that
	// of files that no earlier manifest has, and the bytes of the earlier list.
	quickNames = 300
	quickTexts = 100
	quickList  = 96 << 10
	// fewEarlier is how many earlier manifests, lists of a workspace's files, stay in any case. Beyond that,
	// a check of all sandboxes, which takes long, removes those that none needs.
	fewEarlier = 8
	// maxEarlier is how many earlier lists of a workspace's files, each of at most quickList bytes, are
	// stored at most.
	maxEarlier = 64
	// manifestPatience is how long an update of a workspace's manifest, the list of its files, waits for
	// another update; then it does nothing.
	manifestPatience = 100 * time.Millisecond
	// manifestRetry is the time after which a workspace that had too many files to list is read again.
	manifestRetry = time.Hour
	// manifestUnused is how long the stored list of a workspace's files stays after it was written, if no
	// sandbox has the workspace, because a next run may use it.
	manifestUnused = time.Hour
	// largeRetry is how long no command searches a workspace for drift after a search took too long; see
	// NoteLarge.
	largeRetry = 10 * time.Minute
)

// errTooLarge ends the reading of a workspace that has too many files to be listed for later comparison.
var errTooLarge = errors.New("too many files")

// manifestDir returns the directory, in the state directory, for the manifests of a workspace, the lists of
// its files.
func (bl *Recorder) manifestDir(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return filepath.Join(bl.cat.Dir(), manifestsDir, hex.EncodeToString(sum[:16]))
}

// readManifest reads the newest manifest of a workspace, the list of its files; one without entries if there
// is none that can be read.
func (bl *Recorder) readManifest(workspace string) *manifest {
	return readManifest(bl.manifestDir(workspace), manifestFile)
}

func readManifest(dir, name string) *manifest {
	m := &manifest{dir: dir}
	m.list = Baseline{Dir: m.dir, Nodes: map[string]Entry{}}
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	body, ok := strings.CutPrefix(string(data), manifestHead)
	when, body, whole := strings.Cut(body, "\n")
	if err != nil || !ok || !whole {
		return m
	}
	seen, err := time.Parse(time.RFC3339Nano, when)
	if err == nil && m.list.decode([]byte(body)) == nil {
		m.seen, m.size = seen, len(data)
	} else {
		m.list.Nodes = map[string]Entry{}
	}
	return m
}

// UpdateManifest reads the workspace of a sandbox and stores a new manifest, the list of its files, unless
// the present one was made since the sandbox began to run. A supervisor calls it in the background while a
// command runs. It reports no error: without a manifest, some originals are not known. Cost: a statx of each
// file, and reading each changed small text.
func (bl *Recorder) UpdateManifest(ctx context.Context, rec *catalog.Record) {
	bl.updateManifest(ctx, rec, maxManifest, maxManifest)
}

// startManifest updates the manifest of a small workspace, the list of its files, before a command starts in
// a container that has just mounted it. Thus the originals of all files that change from now on are known. It
// does nothing in a larger workspace, so that the command is not delayed. Cost: some ms.
func (bl *Recorder) startManifest(ctx context.Context, rec *catalog.Record) {
	if rec.Ephemeral {
		return // snapfs run; its window is short
	}
	dir := bl.manifestDir(rec.Workspace)
	st, err := os.Stat(filepath.Join(dir, manifestFile))
	if err == nil && st.Size() > quickList {
		return
	}
	slow := filepath.Join(dir, slowFile)
	if st, err := os.Stat(slow); err == nil && time.Since(st.ModTime()) < largeRetry {
		return
	}
	if !bl.updateManifest(ctx, rec, quickNames, quickTexts) {
		_ = os.WriteFile(slow, nil, 0o600) // without it, the next command tries again
	}
}

// updateManifest stores a new list of a workspace's files as UpdateManifest does, but only if there are at
// most names entries, and at most fresh files that the present list does not have. Otherwise it returns
// false.
func (bl *Recorder) updateManifest(ctx context.Context, rec *catalog.Record, names, fresh int) (fits bool) {
	t := workspaceTree(rec)
	if t == nil || t.Frozen {
		return true
	}
	dir := bl.manifestDir(rec.Workspace)
	if os.MkdirAll(dir, 0o700) != nil {
		return true
	}
	lock, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer vfs.Unlock(lock)
	soon, cancel := context.WithTimeout(ctx, manifestPatience)
	defer cancel()
	err = poll.Until(soon, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		return vfs.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
	})
	if err != nil {
		return true // another supervisor reads it
	}
	old := bl.readManifest(rec.Workspace)
	large := !old.seen.IsZero() && len(old.list.Nodes) == 0 && time.Since(old.seen) < manifestRetry
	if large || old.seen.After(bl.Since(rec, t)) {
		return true
	}
	root, err := OpenRoot(rec.Workspace)
	if err != nil {
		return true
	}
	defer root.Close()
	b, err := bl.host.BackendOf(ctx, *t)
	if err != nil {
		return true
	}
	top, err := vfs.Lstat(int(root.Fd()), "")
	if err != nil {
		return true
	}
	r := manifestReader{
		names: names, fresh: fresh,
		ctx: ctx, root: rec.Workspace, top: top, skip: bl.host.Skip(b, rec.Workspace), old: old,
		now: manifest{dir: old.dir, seen: vfs.Now(), list: Baseline{Dir: old.dir, Nodes: map[string]Entry{}}}, real: RootedReader{Root: root},
	}
	defer r.real.Close()
	if err := r.readDir("."); errors.Is(err, errTooLarge) && names == maxManifest {
		r.now.list.Nodes = map[string]Entry{}
	} else if err != nil {
		return !errors.Is(err, errTooLarge)
	}
	earlier := bl.keepEarlier(rec.Workspace, old)
	r.now.save(earlier)
	return true
}

// keepEarlier retains old, the list of a workspace's files that is about to be replaced, as an earlier one,
// and returns the names of all earlier lists that stay. If there are more than fewEarlier, it removes those
// that no sandbox needs. The caller holds the lock. Cost: if it removes some, reading the catalogue entries
// of all sandboxes, which may be thousands.
func (bl *Recorder) keepEarlier(workspace string, old *manifest) (names []string) {
	if old.size > 0 && old.size <= quickList && len(old.list.Nodes) > 0 {
		name := filepath.Join(old.dir, fmt.Sprint(manifestFile, "-", old.seen.UnixNano()))
		_ = os.Link(filepath.Join(old.dir, manifestFile), name) // without it, an original is not known
	}
	all := earlierManifests(old.dir)
	if len(all) <= fewEarlier {
		for _, seen := range all {
			names = append(names, fmt.Sprint(manifestFile, "-", seen))
		}
		return names
	}
	needed := map[int64]bool{}
	records, failures := bl.cat.List()
	for _, rec := range records {
		w := bl.readWindow(rec)
		if i, _ := slices.BinarySearch(all, w.since.UnixNano()); rec.Workspace == workspace && w.state == "open" && i < len(all) {
			needed[all[i]] = true
		}
	}
	for i, seen := range all {
		name := fmt.Sprint(manifestFile, "-", seen)
		if i >= len(all)-maxEarlier && (needed[seen] || len(failures) > 0) {
			names = append(names, name)
			continue
		}
		_ = os.Remove(filepath.Join(old.dir, name)) // the next update retries
	}
	return names
}

// earlierManifests returns the times, in Unix nanoseconds and sorted, of the stored lists of a workspace's
// files in dir, except the newest one.
func earlierManifests(dir string) (all []int64) {
	list, _ := os.ReadDir(dir) // an error means that there are none
	for _, e := range list {
		at, earlier := strings.CutPrefix(e.Name(), manifestFile+"-")
		if seen, err := strconv.ParseInt(at, 10, 64); earlier && err == nil {
			all = append(all, seen)
		}
	}
	slices.Sort(all)
	return all
}

// manifestAt reads the earliest list of a workspace's files that was begun at an instant or later; the newest
// one if there is none.
func (bl *Recorder) manifestAt(workspace string, since time.Time) *manifest {
	dir := bl.manifestDir(workspace)
	all := earlierManifests(dir)
	if i, _ := slices.BinarySearch(all, since.UnixNano()); i < len(all) {
		if m := readManifest(dir, fmt.Sprint(manifestFile, "-", all[i])); !m.seen.IsZero() {
			return m
		}
	}
	return readManifest(dir, manifestFile)
}

// workspaceTree returns the innermost tree of a sandbox that holds its workspace, nil for none.
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

// manifestReader reads a workspace to make its manifest, the list of its files. Files that are as in the old
// manifest are taken from that.
type manifestReader struct {
	ctx context.Context
	// names and fresh are the limits of updateManifest; fresh counts down.
	names, fresh int

	root string
	top  vfs.Stat
	skip func(string) bool
	old  *manifest
	now  manifest
	real RootedReader
}

// readDir adds a directory of the workspace, and everything below it, to the manifest, the list of its files.
// A directory that this user may not read gets no entry: its content counts as unknown.
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
		if len(r.now.list.Nodes) >= r.names {
			return errTooLarge
		}
		if err := r.add(at, &st); err != nil {
			return err
		}
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

// add adds a file, which is no directory, to the list of the workspace's files, with the bytes of a small
// text. Error: errTooLarge.
func (r *manifestReader) add(path string, st *vfs.Stat) error {
	abs := filepath.Join(r.root, path)
	if e, ok := r.old.list.Nodes[abs]; ok && e.Node != nil && e.Node.Ino == st.Ino && e.Node.CTime.Equal(st.CTime.Time()) && e.Node.Size == st.Size {
		if e.Data != "" {
			r.now.list.bytes += st.Size
		}
		r.now.list.Nodes[abs] = e
		return nil
	}
	if r.fresh--; r.fresh < 0 {
		return errTooLarge
	}
	n, err := r.real.Node(path)
	if err != nil || n == nil {
		return nil //nolint:nilerr // it has gone, or this user may not read it
	}
	e := Entry{Node: n}
	if n.Mode.IsRegular() && n.Size <= maxManifestText && r.now.list.bytes+n.Size <= maxManifestBytes {
		k := pathRecorder{baseline: &r.now.list, base: LiveBase{Real: r.real}}
		e.Data, _ = k.storeText(path, n) // without the bytes
	}
	r.now.list.Nodes[abs] = e
	return nil
}

// save replaces the stored list of a workspace's files. It removes stored texts that the list does not name,
// unless there are earlier lists, which may name them.
func (m *manifest) save(earlier []string) {
	data := fmt.Appendf([]byte(manifestHead), "%s\n", m.seen.UTC().Format(time.RFC3339Nano))
	path := filepath.Join(m.dir, manifestFile)
	if os.WriteFile(path+".new", append(data, m.list.encode()...), 0o600) != nil || os.Rename(path+".new", path) != nil {
		return
	}
	_ = os.Remove(filepath.Join(m.dir, slowFile)) // the next reading finds little that is new
	if len(earlier) > 0 {
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

// original returns the state of a path at an instant from the list of the workspace's files, with the bytes
// of a small text; false if the list does not show it.
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

// NoteLarge notes that a search of a workspace for drift took too long. For largeRetry no command then tries.
// It reports no error: without the note, each command tries.
func (bl *Recorder) NoteLarge(workspace string) {
	dir := bl.manifestDir(workspace)
	if os.MkdirAll(dir, 0o700) == nil {
		_ = os.WriteFile(filepath.Join(dir, largeFile), nil, 0o600)
	}
}

// IsLarge reports whether NoteLarge has noted, not longer ago than largeRetry, that searching a workspace for
// drift takes too long.
func (bl *Recorder) IsLarge(workspace string) bool {
	st, err := os.Stat(filepath.Join(bl.manifestDir(workspace), largeFile))
	return err == nil && time.Since(st.ModTime()) < largeRetry
}

// PruneManifests removes the stored lists of files of workspaces that have no sandbox now. Those written in
// the last hour stay, because runs one after another share a list.
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
