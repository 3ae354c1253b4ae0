package baseline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
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
// Beside it lie confirmedFile, the time of a later reading that found no difference, and partialFile while
// the manifest lacks texts.
//
// An earlier manifest stays as manifestFile, a hyphen and its time, while it is the first one since the start of a
// sandbox that still runs: of all manifests it shows the originals of that sandbox best.
type manifest struct {
	dir  string
	seen time.Time
	size int // bytes of its file
	list Baseline
}

const (
	manifestsDir  = "manifests"
	manifestFile  = "manifest"
	confirmedFile = "again"   // see readConfirmed
	partialFile   = "partial" // the newest manifest lacks texts, see Reading
	largeFile     = "large"   // see NoteLarge
	manifestHead  = "snapfs manifest 1\n"
	// The limits of a manifest, the list of a workspace's files: the number of entries, the bytes of one
	// stored text, and those of all. A larger workspace has no manifest, and further texts are not stored.
	maxManifest      = 100_000
	maxManifestText  = 64 << 10
	maxManifestBytes = 32 << 20
	// fewEarlier is how many earlier manifests, lists of a workspace's files, stay in any case. Beyond that,
	// a check of all sandboxes, which takes long, removes those that none needs.
	fewEarlier = 8
	// maxEarlier is how many earlier manifests, older lists of a workspace's files, are stored at most, and
	// maxEarlierBytes is their size in bytes together. Beyond that the oldest are removed: some originals are then
	// not known.
	maxEarlier      = 64
	maxEarlierBytes = 16 << 20
	// manifestPatience is how long a command waits for another process that is making the manifest, the list
	// of a workspace's files. Then it continues with an older one or none.
	manifestPatience = time.Second
	// manifestRetry is the time after which snapfs again tries to list the files of a workspace that had too
	// many (maxManifest).
	manifestRetry = time.Hour
	// manifestUnused is how long the stored list of a workspace's files stays after it was written, if no
	// sandbox has the workspace, because a next run may use it.
	manifestUnused = time.Hour
	// largeRetry is how long no command searches a workspace for drift after such a search took too long; see
	// NoteLarge.
	largeRetry = 10 * time.Minute
)

// errTooLarge ends the reading of a workspace that has too many files to be listed for later comparison.
var errTooLarge = errors.New("too many files")

// manifestDir returns the directory in the state directory for the manifests, the lists of files, of a
// workspace.
func (bl *Recorder) manifestDir(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return filepath.Join(bl.cat.Dir(), manifestsDir, hex.EncodeToString(sum[:16]))
}

// manifestSeen returns the time of the newest manifest in dir, the list of a workspace's files: when the last
// reading of the workspace began that found these files. It is zero if there is no manifest. empty means that
// the manifest has no entries because the workspace is too large. Cost: reading the first line.
func manifestSeen(dir string) (seen time.Time, empty bool) {
	f, err := os.Open(filepath.Join(dir, manifestFile))
	if err != nil {
		return time.Time{}, false
	}
	defer f.Close()
	none := string((&Baseline{}).encode())
	data, err := io.ReadAll(io.LimitReader(f, int64(len(manifestHead)+len(time.RFC3339Nano)+len(none)+1)))
	body, ok := strings.CutPrefix(string(data), manifestHead)
	when, body, whole := strings.Cut(body, "\n")
	if err != nil || !ok || !whole {
		return time.Time{}, false
	}
	seen, _ = time.Parse(time.RFC3339Nano, when)
	if _, again := readConfirmed(dir); again.After(seen) {
		seen = again
	}
	return seen, body == none || body == oldHead+oldEnd
}

// readConfirmed reads confirmedFile: a hash over the paths and metadata of the workspace's files, and when the last
// reading that found just these began. The newest manifest lists them. So a reading with the same hash needs no new
// manifest.
func readConfirmed(dir string) (sum string, seen time.Time) {
	data, _ := os.ReadFile(filepath.Join(dir, confirmedFile)) // an error means that there is none
	sum, when, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), " ")
	seen, err := time.Parse(time.RFC3339Nano, when)
	if err != nil {
		return "", time.Time{}
	}
	return sum, seen
}

// writeConfirmed stores in dir, for readConfirmed, that a reading which began at seen found the files that the newest
// manifest lists. sum is the hash over their paths and metadata, "" if no later reading can find the same.
func writeConfirmed(dir, sum string, seen time.Time) {
	path := filepath.Join(dir, confirmedFile)
	data := fmt.Sprintf("%s %s\n", sum, seen.UTC().Format(time.RFC3339Nano))
	if catalog.Overwrite(path+".new", []byte(data)) != nil {
		return
	}
	// The two files change places, since on ext4 it takes long to make one where many were removed lately.
	if vfs.Replace(path+".new", path) != nil {
		_ = os.Rename(path+".new", path) // the first time
	}
}

// readManifest reads the manifest, the list of a workspace's files, from the file name in dir. It returns one
// without entries if the file cannot be read.
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
		if _, again := readConfirmed(dir); name == manifestFile && again.After(seen) {
			m.seen = again
		}
	} else {
		m.list.Nodes = map[string]Entry{}
	}
	return m
}

// keepEarlier retains old, the list of a workspace's files that is about to be replaced, as an earlier one,
// and returns the names of all earlier lists that stay. If there are more than fewEarlier, it removes those
// that no sandbox needs. The caller holds the lock of the directory of these lists. Cost: if it removes some,
// reading the catalogue entries of all sandboxes, which may be thousands.
func (bl *Recorder) keepEarlier(workspace string, old *manifest) (names []string) {
	if old.size > 0 && old.size <= maxEarlierBytes && len(old.list.Nodes) > 0 {
		_ = os.Link(filepath.Join(old.dir, manifestFile), filepath.Join(old.dir, earlierName(old.seen.UnixNano()))) // without it, an original is not known
	}
	all := earlierManifests(old.dir)
	if len(all) <= fewEarlier && len(all)*old.size <= maxEarlierBytes {
		return earlierNames(old.dir)
	}
	needed := map[int64]bool{}
	records, failures := bl.cat.List()
	for _, rec := range records {
		w := bl.readWindow(rec)
		if rec.Workspace != workspace || w.state != opened {
			continue
		}
		if i, _ := slices.BinarySearch(all, w.since.UnixNano()); i < len(all) {
			needed[all[i]] = true
		}
	}
	recent := time.Now().Add(-time.Minute).UnixNano() // its window may not be saved yet
	for i, size := len(all)-1, 0; i >= 0; i-- {
		name := earlierName(all[i])
		st, err := os.Lstat(filepath.Join(old.dir, name))
		if err == nil {
			size += int(st.Size())
		}
		if i >= len(all)-maxEarlier && size <= maxEarlierBytes && (needed[all[i]] || all[i] > recent || len(failures) > 0) {
			names = append(names, name)
			continue
		}
		_ = os.Remove(filepath.Join(old.dir, name)) // the next update retries
	}
	return names
}

// earlierName returns the file name of an earlier manifest, a list of a workspace's files that was read at
// the time seen, in Unix nanoseconds.
func earlierName(seen int64) string { return fmt.Sprint(manifestFile, "-", seen) }

// earlierNames returns the file names of all manifests, lists of a workspace's files, in a directory except
// the newest one.
func earlierNames(dir string) (names []string) {
	for _, seen := range earlierManifests(dir) {
		names = append(names, earlierName(seen))
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

// manifestOf reads the manifest that knows most of a sandbox's workspace at an instant: the earliest one that
// was begun at the instant or later; else the newest one. It waits for one that is being made.
func (bl *Recorder) manifestOf(ctx context.Context, rec *catalog.Record, since time.Time) *manifest {
	dir, from := bl.manifestDir(rec.Workspace), since.UnixNano()
	m := findManifest(dir, from)
	if m == nil {
		if lock := lockManifest(ctx, dir, syscall.LOCK_SH, manifestPatience); lock != nil {
			vfs.Unlock(lock)
		}
		m = findManifest(dir, from)
	}
	if m == nil {
		return readManifest(dir, manifestFile)
	}
	return m
}

// findManifest reads the earliest manifest in a directory, a list of a workspace's files, that was begun at
// an instant (Unix nanoseconds) or later; nil if there is none.
func findManifest(dir string, since int64) *manifest {
	all := earlierManifests(dir)
	if i, _ := slices.BinarySearch(all, since); i < len(all) {
		m := readManifest(dir, earlierName(all[i]))
		m.seen = time.Unix(0, all[i]) // its first line is older if a later reading found the same
		return m
	}
	if seen, _ := manifestSeen(dir); seen.IsZero() || seen.UnixNano() < since {
		return nil
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

// save writes the manifest, the list of a workspace's files, in place of the newest one, and reports whether it has.
// partial means that some texts are not stored yet. earlier has the file names of older manifests that stay. save
// removes stored texts to which no manifest refers; if there are earlier ones, only when most texts are such.
func (m *manifest) save(earlier []string, partial bool) bool {
	path, note := filepath.Join(m.dir, manifestFile), filepath.Join(m.dir, partialFile)
	if partial && os.WriteFile(note, nil, 0o600) != nil {
		return false
	}
	data := fmt.Appendf([]byte(manifestHead), "%s\n", m.seen.UTC().Format(time.RFC3339Nano))
	if os.WriteFile(path+".new", append(data, m.list.encode()...), 0o600) != nil || os.Rename(path+".new", path) != nil {
		return false
	}
	used := map[string]bool{manifestFile: true, largeFile: true, confirmedFile: true, partialFile: partial}
	for _, e := range m.list.Nodes {
		used[e.Data] = true
	}
	list, _ := os.ReadDir(m.dir)
	if len(earlier) > 0 && len(list) < 2*len(used)+1000 {
		if !partial {
			_ = os.Remove(note) // the cost is a search for texts
		}
		return true
	}
	for _, name := range earlier {
		used[name] = true
		for _, e := range readManifest(m.dir, name).list.Nodes {
			used[e.Data] = true
		}
	}
	for _, e := range list {
		if !used[e.Name()] {
			_ = os.Remove(filepath.Join(m.dir, e.Name())) // the next update retries
		}
	}
	return true
}

// original returns the state that the file at the absolute path abs had at the instant since, from the list of the
// workspace's files, with the bytes of a small text; false if the list does not show it.
func (m *manifest) original(abs string, since time.Time) (Entry, []byte, bool) {
	if m.seen.Before(since) {
		return Entry{}, nil, false
	}
	if e, ok := m.list.Nodes[abs]; ok {
		if !vfs.ChangedBefore(e.Node.CTime, since) {
			return Entry{}, nil, false
		}
		return e, m.list.text(&e), true
	}
	for dir := filepath.Dir(abs); dir != "/"; dir = filepath.Dir(dir) {
		if e, ok := m.list.Nodes[dir]; ok {
			return Entry{}, nil, e.Node.Mode.IsDir() && vfs.ChangedBefore(e.Node.MTime, since)
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

// PruneManifests removes the stored lists of files of workspaces that have no sandbox. Those written in the last
// hour stay, because runs one after another share a list. all holds the records of all sandboxes, as the
// catalogue has just read them; if it could not read one, PruneManifests removes nothing.
func (bl *Recorder) PruneManifests(all *catalog.Listing) {
	list, err := os.ReadDir(filepath.Join(bl.cat.Dir(), manifestsDir))
	if err != nil || len(list) == 0 || len(all.Failures) > 0 {
		return
	}
	seen, used := map[string]bool{}, map[string]bool{}
	for _, rec := range all.Records {
		if !seen[rec.Workspace] {
			seen[rec.Workspace] = true
			used[filepath.Base(bl.manifestDir(rec.Workspace))] = true
		}
	}
	for _, e := range list {
		if info, err := e.Info(); !used[e.Name()] && err == nil && time.Since(info.ModTime()) > manifestUnused {
			_ = os.RemoveAll(filepath.Join(bl.cat.Dir(), manifestsDir, e.Name())) // the next call retries
		}
	}
}
