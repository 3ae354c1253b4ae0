package baseline

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
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
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// What a base held at places that its sandbox has changed is kept beside the
// sandbox's record, where the base itself may change (a live one) or does not
// count any more (what was promoted is the base of what comes after):
//
//	bases/N/kept            what was there, by absolute path
//	bases/N/kept.json       the same, as it was written before; kept replaces it
//	bases/N/SHA256          the bytes of a small text
//	bases/N/conflicts.json  what a refresh could not merge, see conflicts.go
//
// N is the record's Refreshed while the sandbox has that base. Nothing of it
// vouches for itself after a crash but by being whole: bytes are renamed into
// place before the list that names them.
type Baseline struct {
	Dir     string
	Nodes   map[string]Entry
	bytes   int64 // of all data
	Changed bool
}

// An Entry is what a base has at a path.
type Entry struct {
	// Node is nil for nothing.
	Node *diff.Node
	// Data is the name of the file with its bytes, or "".
	Data string
	// Carried: it is not the base that had it, but the sandbox when this was
	// promoted. Made: and there was nothing before, so that nothing but what is
	// kept lies beneath it.
	Carried, Made bool
	// Base is what was kept here before it was Carried, or nil.
	Base *Entry
	// Unknown says why it is not known what the base has, and never will be; Node
	// is what was there instead then. "" where it is known.
	Unknown string
}

const (
	keptFile = "kept"
	keptJSON = "kept.json"
	// What is kept of one base at most. Beyond it, what is not kept and changes
	// is a conflict.
	keptText  = 1 << 20
	keptBytes = 64 << 20
	keptNodes = 20_000
)

func (bl *Recorder) BaseDir(name string, refreshed int) string {
	return filepath.Join(bl.cat.Path(name), "bases", strconv.Itoa(refreshed))
}

// Read reads what is kept of the base that a sandbox has now.
func (bl *Recorder) Read(rec *catalog.Record) (*Baseline, error) {
	return readDir(bl.BaseDir(rec.Name, rec.Refreshed))
}

func readDir(dir string) (*Baseline, error) {
	k := &Baseline{Dir: dir, Nodes: map[string]Entry{}}
	data, err := os.ReadFile(filepath.Join(dir, keptFile))
	read := k.decode
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(filepath.Join(dir, keptJSON))
		read = k.decodeJSON
	}
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = read(data)
	}
	if err != nil {
		return nil, &errs.Error{Op: "reading what is kept of a base", Path: dir, Kind: errs.ErrCorrupt, Err: err}
	}
	return k, nil
}

func (k *Baseline) decodeJSON(data []byte) error {
	var list jsonBaseline
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for path, n := range list.Nodes {
		k.Nodes[UnescapePath(path)] = n.Entry()
		for e := &n; e != nil; e = e.Base {
			if e.Data != "" && e.Node != nil {
				k.bytes += e.Node.Size
			}
		}
	}
	return nil
}

// Update changes what is kept of a sandbox's base, while nobody else does.
func (bl *Recorder) Update(ctx context.Context, rec *catalog.Record, change func(k *Baseline) error) error {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	lock, err := bl.lock(rec)
	if err != nil {
		return err
	}
	defer lock.Close()
	k, err := readDir(dir)
	if err == nil {
		err = change(k)
	}
	if err != nil || !k.Changed {
		return err
	}
	if err := fault.Point(ctx, "write what is kept of a base"); err != nil {
		return &errs.Error{Op: "keeping a base", Path: dir, Kind: errs.KindOf(err), Err: err}
	}
	return bl.save(rec.Name, rec.Refreshed, k)
}

// WithLock does what changes the real tree for a sandbox, and remembers what it has left there: who looked
// for what the base held in between would take that for somebody else's. rec may be nil, of one that is gone.
func (bl *Recorder) WithLock(rec *catalog.Record, do func() error) error {
	if rec == nil || rec.Ephemeral {
		return do()
	}
	lock, err := bl.lock(rec)
	if err != nil {
		return err
	}
	defer lock.Close()
	return do()
}

// lock waits for who else changes what is kept of a sandbox's base.
func (bl *Recorder) lock(rec *catalog.Record) (*os.File, error) {
	dir := bl.BaseDir(rec.Name, rec.Refreshed)
	for _, d := range []string{filepath.Dir(dir), dir} { // not the sandbox's own, which may be gone
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, &errs.Error{Op: "keeping a base", Path: d, Kind: errs.KindOf(err), Err: err}
		}
	}
	return lockDir(dir)
}

// lockDir waits for a directory's lock.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, &errs.Error{Op: "locking", Path: dir, Kind: errs.KindOf(err), Err: err}
	}
	if err := vfs.Flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, &errs.Error{Op: "locking", Path: dir, Kind: errs.KindOf(err), Err: err}
	}
	return f, nil
}

func (bl *Recorder) save(name string, refreshed int, k *Baseline) error {
	rel, err := filepath.Rel(bl.cat.Path(name), bl.BaseDir(name, refreshed))
	if err != nil {
		return err
	}
	return bl.cat.WriteFile(name, filepath.Join(rel, keptFile), k.encode())
}

// Set says what the base has at a path.
func (k *Baseline) Set(path string, n Entry) { k.Nodes[path], k.Changed = n, true }

// UndoPromotion goes back to what the base had where something was carried.
func (k *Baseline) UndoPromotion(path string) {
	n, ok := k.Nodes[path]
	if !ok || !n.Carried {
		return
	}
	k.Changed = true
	if n.Base == nil {
		delete(k.Nodes, path)
		return
	}
	k.Nodes[path] = *n.Base
}

// open opens the bytes of what is kept of a path: ErrNotFound where there are none.
func (k *Baseline) open(path string, n Entry) (*os.File, error) {
	if n.Data == "" {
		return nil, &errs.Error{Op: "opening", Path: path, Kind: errs.ErrNotFound, Err: errors.New("what the base held is not kept")}
	}
	f, err := os.Open(filepath.Join(k.Dir, n.Data))
	if err != nil {
		return nil, &errs.Error{Op: "opening what is kept of", Path: path, Kind: errs.KindOf(err), Err: err}
	}
	return f, nil
}

// full: nothing more is kept.
func (k *Baseline) full() bool { return len(k.Nodes) >= keptNodes }

// Absent reports whether it is kept that the base has nothing at a path that is
// not kept itself: a directory above it was not there, or is kept with all in it.
func (k *Baseline) Absent(path string) bool {
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if n, ok := k.Nodes[dir]; ok {
			return n.Unknown == "" && (n.Node == nil || !n.Node.Mode.IsDir() || n.Made)
		}
	}
	return false
}

// Inherit copies what is kept of one base for another sandbox, by hard links:
// nothing ever writes to a file that is there.
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
		return &errs.Error{Op: "handing down what is kept of", Path: from.Name, Kind: errs.KindOf(err), Err: err}
	}
	return nil
}

// A jsonBaseline is the format 1, which is not written any more. Its entries are, in
// the note of what a promotion carried.
type jsonBaseline struct {
	Nodes map[string]JSONEntry `json:"nodes"`
}

type JSONEntry struct {
	Node    *jsonStat  `json:"node"`
	Data    string     `json:"data,omitempty"`
	Carried bool       `json:"carried,omitempty"`
	Made    bool       `json:"made,omitempty"`
	Base    *JSONEntry `json:"base,omitempty"`
	Unknown string     `json:"unknown,omitempty"`
}

func JSONEntryOf(n Entry) JSONEntry {
	e := JSONEntry{Node: jsonStatOf(n.Node), Data: n.Data, Carried: n.Carried, Made: n.Made, Unknown: n.Unknown}
	if n.Base != nil {
		base := JSONEntryOf(*n.Base)
		e.Base = &base
	}
	return e
}

func (k JSONEntry) Entry() Entry {
	n := Entry{Node: k.node(), Data: k.Data, Carried: k.Carried, Made: k.Made, Unknown: k.Unknown}
	if k.Base != nil {
		base := k.Base.Entry()
		n.Base = &base
	}
	return n
}

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
	s := &jsonStat{n.Mode, n.UID, n.GID, n.Size, n.MTime, n.CTime, EscapePath(n.Target), n.Rdev, nil, n.Ino, n.NLink}
	for name, value := range n.Xattrs {
		if s.Xattrs == nil {
			s.Xattrs = map[string]string{}
		}
		s.Xattrs[EscapePath(name)] = EscapePath(value)
	}
	return s
}

func (k JSONEntry) node() *diff.Node {
	s := k.Node
	if s == nil {
		return nil
	}
	n := &diff.Node{
		Mode: s.Mode, UID: s.UID, GID: s.GID, Size: s.Size, MTime: s.MTime, CTime: s.CTime,
		Target: UnescapePath(s.Target), Rdev: s.Rdev, Ino: s.Ino, NLink: s.NLink,
	}
	for name, value := range maps.All(s.Xattrs) {
		if n.Xattrs == nil {
			n.Xattrs = map[string]string{}
		}
		n.Xattrs[UnescapePath(name)] = UnescapePath(value)
	}
	return n
}

// EscapePath makes a string of any bytes one that JSON keeps: what is not UTF-8 is
// written in base 64, led by a NUL, which leads nothing else.
func EscapePath(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, "\x00") {
		return s
	}
	return "\x00" + base64.StdEncoding.EncodeToString([]byte(s))
}

func UnescapePath(s string) string {
	if code, ok := strings.CutPrefix(s, "\x00"); ok {
		if b, err := base64.StdEncoding.DecodeString(code); err == nil {
			return string(b)
		}
	}
	return s
}

// UndoPromotions goes back to the base as it was before anything was promoted.
func (k *Baseline) UndoPromotions() {
	for path := range k.Nodes {
		k.UndoPromotion(path)
	}
	k.Changed = false // on disk it stays
}

// Promote makes what the sandbox has at a path the base of what it changes there.
func (k *Baseline) Promote(abs string, c *diff.Change, mine *RootedReader) error {
	n := Entry{Node: c.New, Carried: true, Made: c.Kind == diff.Added && c.New.Mode.IsDir()}
	if before, had := k.Nodes[abs]; had {
		n.Base = &before
		if before.Carried {
			n.Base, n.Made = before.Base, n.Made || before.Made
		}
	}
	if c.New != nil && c.New.Mode.IsRegular() && c.New.Size <= keptText && k.bytes+c.New.Size <= keptBytes {
		var err error
		if n.Data, err = k.storeText(mine, c.Path); err != nil {
			return err
		}
	}
	k.Set(abs, n)
	return nil
}

func (k *Baseline) storeText(l *RootedReader, path string) (string, error) {
	f, err := l.Open(path)
	if err != nil {
		return "", nil // its bytes are not kept
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, keptText+1))
	if err != nil || len(data) > keptText || bytes.IndexByte(data, 0) >= 0 {
		return "", nil // its bytes are not kept
	}
	return k.Store(data, f)
}
