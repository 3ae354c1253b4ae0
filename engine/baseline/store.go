package baseline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Baseline holds the originals of one sandbox: for each path that the sandbox changed, the state in the
// base. It is needed where the base is live, and where the sandbox has promoted, because the promoted state
// is the base of later changes. On disk it is the directory bases/N in the sandbox's directory, which has:
//
//	baselineFile        the entries, by absolute path (see encode)
//	baselineJSON        the entries in an older format, replaced by baselineFile
//	SHA256              the bytes of a small text
//	conflicts.json      conflicts of a refresh (package reconcile)
//
// N counts the refreshes of the sandbox. Files of bytes are renamed into place before the list that names
// them, so that a list is complete after a crash.
type Baseline struct {
	Dir string
	// Nodes are the entries by absolute path, and by KeyIn for other targets.
	Nodes   map[string]Entry
	bytes   int64 // total size of the stored texts
	Changed bool
	absent  map[string]bool // results of Absent by directory
}

// An Entry is one original of a sandbox's baseline: the state that the file at one path had in the sandbox's
// base.
type Entry struct {
	// Node is nil if the base has nothing there.
	Node *diff.Node
	// Data is the name of the file with the bytes, or "" if they are not stored.
	Data string
	// Promoted is set if the state comes from a promotion of the sandbox, not from the
	// original base. Created is also set for a directory that the promotion created: the base
	// has nothing in it beyond the other entries.
	Promoted, Created bool
	// Base is the entry that the promotion replaced, or nil.
	Base *Entry
	// Unknown is why the original is not known, "" if it is known. Node is then
	// the node that the real tree had when the entry was recorded.
	Unknown string
}

const (
	basesDir     = "bases" // in the sandbox's directory
	baselineFile = "kept"
	baselineJSON = "kept.json"
	// maxText, maxBytes and maxEntries limit a sandbox's baseline: the bytes of one stored text, the bytes of
	// all, and the number of entries. An original beyond them is not stored, and a change of the real tree
	// there becomes a conflict.
	maxText    = 1 << 20
	maxBytes   = 64 << 20
	maxEntries = 20_000
)

// BaseDir returns the directory with the originals of a sandbox, its baseline. refreshed is the number of the
// sandbox's last refresh, since each makes a new baseline.
func (bl *Recorder) BaseDir(name string, refreshed int) string {
	return filepath.Join(bl.cat.Path(name), basesDir, strconv.Itoa(refreshed))
}

// Read returns the baseline of the sandbox's present base, the originals of the files it changed; an empty
// one if nothing is stored. Errors: errs.ErrCorrupt, only if the content of the file is damaged;
// errs.ErrNotSupported for the format of a newer snapfs; errors of reading the file.
func (bl *Recorder) Read(rec *catalog.Record) (*Baseline, error) {
	k, err := readDir(bl.BaseDir(rec.Name, rec.Refreshed))
	return k, withRepairHint(rec.Name, err)
}

// readDir reads the baseline, the originals of a sandbox's changed files, from its directory, in the present
// or the older file format; an empty one if there is neither file. Errors: as [Recorder.Read].
func readDir(dir string) (*Baseline, error) {
	k := &Baseline{Dir: dir, Nodes: map[string]Entry{}}
	data, err := os.ReadFile(filepath.Join(dir, baselineFile))
	read := k.decode
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(filepath.Join(dir, baselineJSON))
		read = k.decodeJSON
	}
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, errs.With("reading the baseline", dir, err)
	}
	if err := read(data); err != nil {
		kind := errs.ErrCorrupt
		if errors.Is(err, errs.ErrNotSupported) {
			kind = errs.ErrNotSupported
		}
		return nil, &errs.Error{Op: "reading the baseline", Path: dir, Kind: kind, Err: err}
	}
	return k, nil
}

// decodeJSON reads into k the content of a baseline's file in the JSON format that older versions of snapfs
// wrote.
func (k *Baseline) decodeJSON(data []byte) error {
	var list jsonBaseline
	if err := exactjson.Decode(data, &list); err != nil {
		return err
	}
	for path, n := range list.Nodes {
		k.Nodes[path] = n.Entry()
		for e := &n; e != nil; e = e.Base {
			if e.Data != "" && e.Node != nil {
				k.bytes += e.Node.Size
			}
		}
	}
	return nil
}

// Update calls change with the sandbox's baseline, the originals of its changed files, under its lock, and
// saves the baseline if change has set Changed. After an error the file on disk is unchanged.
func (bl *Recorder) Update(ctx context.Context, rec *catalog.Record, change func(k *Baseline) error) error {
	return bl.update(ctx, rec, bl.cat.WriteFile, change)
}

func (bl *Recorder) update(ctx context.Context, rec *catalog.Record, store storeFile, change func(k *Baseline) error) error {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	lock, err := lock(dir)
	if err != nil {
		return err
	}
	defer vfs.Unlock(lock)
	k, err := readDir(dir)
	if err = withRepairHint(rec.Name, err); err == nil {
		err = change(k)
	}
	if err != nil || !k.Changed {
		return err
	}
	if err := fault.Point(ctx, "write the baseline"); err != nil {
		return errs.With("recording the baseline", dir, err)
	}
	rel := filepath.Join(basesDir, strconv.Itoa(rec.Refreshed), baselineFile)
	return store(rec.Name, rel, k.encode()) // atomically
}

// WithLock calls do, which changes the real tree, under the lock of the sandbox's baseline (stored
// originals), so that a concurrent Record does not mistake the promotion's own writes for the user's. If rec
// is nil, or the sandbox is ephemeral, it takes no lock.
func (bl *Recorder) WithLock(rec *catalog.Record, do func() error) error {
	if rec == nil || rec.Ephemeral {
		return do()
	}
	lock, err := lock(bl.BaseDir(rec.Name, rec.Refreshed))
	if err != nil {
		return err
	}
	defer vfs.Unlock(lock)
	return do()
}

// makeDir creates dir, the directory for the originals of a sandbox, and its parent. It returns an error if
// the sandbox's directory above them does not exist.
func makeDir(dir string) error {
	for _, d := range []string{filepath.Dir(dir), dir} { // not MkdirAll: a removed sandbox must not reappear
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return errs.With("recording the baseline", d, err)
		}
	}
	return nil
}

// lock takes an exclusive flock on dir, the directory for the originals of a sandbox, and waits for it. Closing the
// file releases it. It creates the directory if the sandbox exists.
func lock(dir string) (*os.File, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, errs.With("locking", dir, err)
	}
	if err := vfs.Flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, errs.With("locking", dir, err)
	}
	return f, nil
}

// UndoPromotion restores in the baseline, at a path, the original state that a promotion replaced there when
// it made the promoted state the base. It does nothing if nothing was promoted there.
func (k *Baseline) UndoPromotion(path string) {
	n, ok := k.Nodes[path]
	if !ok || !n.Promoted {
		return
	}
	if n.Base == nil {
		k.Unset(path)
		return
	}
	k.Set(path, *n.Base)
}

// open opens the file with the stored bytes of the original at a path; the caller closes it. Error:
// errs.ErrNotFound if none are stored.
func (k *Baseline) open(path string, n Entry) (*os.File, error) {
	if n.Data == "" {
		return nil, &errs.Error{Op: "opening", Path: path, Kind: errs.ErrNotFound, Err: errors.New("what the base held is not kept")}
	}
	f, err := os.Open(filepath.Join(k.Dir, n.Data))
	if err != nil {
		return nil, errs.With("opening the original of", path, err)
	}
	return f, nil
}

// text returns the stored bytes of an original, or nil if there are none or their SHA-256 is not their name:
// a list read without a lock may name a file that has been removed.
func (k *Baseline) text(e *Entry) []byte {
	if e.Data == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(k.Dir, e.Data))
	sum := sha256.Sum256(data)
	if err != nil || hex.EncodeToString(sum[:]) != e.Data {
		return nil
	}
	return data
}

// full reports whether the baseline, the stored originals of a sandbox, has its maximum number of entries.
func (k *Baseline) full() bool { return len(k.Nodes) >= maxEntries }

// Inherit gives to, a fork of the sandbox from, a copy of the baseline (stored originals) of from, by hard
// links. That is safe because the files are only ever replaced, never written to.
func (bl *Recorder) Inherit(from, to *catalog.Record) error {
	src, dst := bl.BaseDir(from.Name, to.Refreshed), bl.BaseDir(to.Name, to.Refreshed)
	list, err := os.ReadDir(src)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.MkdirAll(dst, 0o700)
	}
	for _, entry := range list {
		if err == nil && entry.Type().IsRegular() && !strings.HasSuffix(entry.Name(), ".new") {
			err = os.Link(filepath.Join(src, entry.Name()), filepath.Join(dst, entry.Name()))
		}
	}
	if err != nil {
		return errs.With("copying the baseline of", from.Name, err)
	}
	return nil
}

// A jsonBaseline is the content of a baseline's file, the originals of a sandbox's changed files, in the
// older JSON format. snapfs reads it and does not write it any more.
type jsonBaseline struct {
	Nodes map[string]JSONEntry `json:"nodes"`
}

// A JSONEntry is the JSON form of an [Entry], the original of one file. The older format of a baseline and
// the note of a promotion (package reconcile) contain it. Package exactjson encodes it, as paths, link targets and
// attributes may be any bytes.
type JSONEntry struct {
	Node     *jsonStat  `json:"node"`
	Data     string     `json:"data,omitempty"`
	Promoted bool       `json:"carried,omitempty"`
	Created  bool       `json:"made,omitempty"`
	Base     *JSONEntry `json:"base,omitempty"`
	Unknown  string     `json:"unknown,omitempty"`
}

// JSONEntryOf converts an entry of a baseline, the original of one file, to its JSON form.
func JSONEntryOf(n Entry) JSONEntry {
	e := JSONEntry{Node: jsonStatOf(n.Node), Data: n.Data, Promoted: n.Promoted, Created: n.Created, Unknown: n.Unknown}
	if n.Base != nil {
		base := JSONEntryOf(*n.Base)
		e.Base = &base
	}
	return e
}

// Entry converts the JSON form of an entry of a baseline, the original of one file, back to the entry.
func (k JSONEntry) Entry() Entry {
	n := Entry{Node: k.node(), Data: k.Data, Promoted: k.Promoted, Created: k.Created, Unknown: k.Unknown}
	if k.Base != nil {
		base := k.Base.Entry()
		n.Base = &base
	}
	return n
}

// A jsonStat is the JSON form of a diff.Node, the metadata of one file, in baselines of the older format.
type jsonStat struct {
	Mode   fs.FileMode       `json:"mode"`
	UID    uint32            `json:"uid"`
	GID    uint32            `json:"gid"`
	Size   int64             `json:"size"`
	MTime  time.Time         `json:"mtime"`
	CTime  time.Time         `json:"ctime"`
	Target string            `json:"target,omitempty"`
	Rdev   uint64            `json:"rdev,omitempty"`
	Xattrs map[string]string `json:"xattrs,omitempty"`
	Ino    uint64            `json:"ino"`
	NLink  uint32            `json:"nlink"`
}

func jsonStatOf(n *diff.Node) *jsonStat {
	if n == nil {
		return nil
	}
	return &jsonStat{n.Mode, n.UID, n.GID, n.Size, n.MTime, n.CTime, n.Target, n.Rdev, maps.Clone(n.Xattrs), n.Ino, n.NLink}
}

func (k JSONEntry) node() *diff.Node {
	s := k.Node
	if s == nil {
		return nil
	}
	return &diff.Node{
		Mode: s.Mode, UID: s.UID, GID: s.GID, Size: s.Size, MTime: s.MTime, CTime: s.CTime,
		Target: s.Target, Rdev: s.Rdev, Ino: s.Ino, NLink: s.NLink, Xattrs: maps.Clone(s.Xattrs),
	}
}

// UndoPromotions restores in k, in memory only, the base as it was before all promotions to the sandbox's own
// trees.
func (k *Baseline) UndoPromotions() {
	for path := range k.Nodes {
		if filepath.IsAbs(path) {
			k.UndoPromotion(path)
		}
	}
	k.Changed = false // so that Update does not write it
}

// KeyIn returns the key in Baseline.Nodes of the entry for a path in a promotion target other than the workspace. It
// is no absolute path, so that a lookup by absolute path, which is for the workspace, does not find the entry.
func KeyIn(target, path string) string { return "to:" + target + "//" + path }

// In turns k, in memory only, into the baseline for a promotion of the workspace's changes to another target.
// That is the original base, except where the sandbox promoted to that target before, which UndoPromotion can
// undo.
func (k *Baseline) In(workspace, target string) {
	k.UndoPromotions()
	for key, n := range maps.Clone(k.Nodes) {
		if path, ok := strings.CutPrefix(key, KeyIn(target, "")); ok {
			path = filepath.Join(workspace, path)
			n.Base = nil
			if original, had := k.Nodes[path]; had {
				n.Base = &original
			}
			k.Nodes[path], k.absent = n, nil
		}
	}
}

// Promote makes the state that the promoted change c gave a path the base of the sandbox's later changes of
// it. abs is the absolute path in the real tree. Of a small text it stores the bytes, which it reads from mine,
// the sandbox's tree. The caller saves the baseline.
func (k *Baseline) Promote(abs string, c *diff.Change, mine *RootedReader) error {
	n := Entry{Node: c.New, Promoted: true, Created: c.Kind == diff.Added && c.New.Mode.IsDir()}
	if before, had := k.Nodes[abs]; had {
		n.Base = &before
		if before.Promoted {
			n.Base, n.Created = before.Base, n.Created || before.Created
		}
	}
	if c.New != nil && c.New.Mode.IsRegular() && c.New.Size <= maxText && k.bytes+c.New.Size <= maxBytes {
		var err error
		if n.Data, err = k.storeText(mine, c.Path); err != nil {
			return err
		}
	}
	k.Set(abs, n)
	return nil
}

// storeText copies a small text file of the sandbox to the directory of the baseline, for later merges, and
// returns the name of the copy, or "" for a file that is not text or cannot be read.
func (k *Baseline) storeText(l *RootedReader, path string) (string, error) {
	f, err := l.Open(path)
	if err != nil {
		return "", nil // record the entry without bytes
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil || len(data) > maxText || bytes.IndexByte(data, 0) >= 0 {
		return "", nil // record the entry without bytes
	}
	return k.Store(data, f)
}
