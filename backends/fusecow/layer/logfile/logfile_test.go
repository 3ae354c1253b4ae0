//go:build linux

package logfile_test

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newLayer returns an open, empty layer.
func newLayer(t *testing.T) *logfile.Layer {
	t.Helper()
	d, err := logfile.Open(t.TempDir()+"/layer", true)
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

var inode = logfile.Inode{
	ID: logfile.FirstOwnIno + 7, Mode: unix.S_IFREG | 0o640, UID: 1, GID: 2, Nlink: 3, Rdev: 4, Size: 5, Blocks: 8, Layer: 1,
	Atime: logfile.At(-1, 2), Mtime: logfile.At(1<<40, 3), Ctime: logfile.At(5, 6), Target: "t", Xattrs: map[string]string{"user.a": "b"},
	LowerPath: "a/b", Lower: logfile.Identity{Ino: 9, Dev: 10, Born: logfile.At(11, 12)},
}

var sparse = logfile.Sparse{
	Own: logfile.Identity{Ino: 1, Born: logfile.At(2, 3)},
	Sources: []logfile.Source{
		{Layer: 0, Until: 100, File: logfile.Identity{Ino: 4}, Size: 90, Mtime: logfile.At(5, 6), Blocks: 16},
		{Layer: logfile.InLower, Until: 50},
	},
}

var original = logfile.Original{
	Path: "a/b", Stat: vfs.Stat{Mode: 0o644, UID: 1, GID: 2, Nlink: 1, Ino: 3, Dev: 4, Size: 5, MTime: vfs.Timestamp{Sec: 6, Nsec: 7}},
	Xattrs: map[string]string{"user.c": "d"}, ID: 3, Copy: 1,
}

// records encodes one record of each kind.
func records() (w logfile.Writer) {
	w.Gone(42)
	w.Inode(&inode)
	w.Sparse(inode.ID, &sparse)
	w.Original(&original)
	w.Name(1, "b", inode.ID)
	w.Unname(1, "c")
	return append(w, logfile.KindClean)
}

// TestRecordsDecodeToWhatWasEncoded decodes a record of each kind, and refuses each premature end.
func TestRecordsDecodeToWhatWasEncoded(t *testing.T) {
	type name struct {
		dir  uint64
		name string
		to   uint64
	}
	var got []any
	read := func(r *logfile.Reader) {
		for r.More() {
			switch kind := r.Kind(); kind {
			case logfile.KindGone:
				got = append(got, r.Gone())
			case logfile.KindInode:
				got = append(got, r.Inode())
			case logfile.KindSparse:
				id, p := r.Sparse()
				got = append(got, id, p)
			case logfile.KindOriginal:
				got = append(got, r.Original())
			case logfile.KindName:
				dir, base, to := r.Name()
				got = append(got, name{dir, base, to})
			case logfile.KindUnname:
				dir, base := r.Unname()
				got = append(got, name{dir: dir, name: base})
			default:
				r.Skip(kind)
			}
		}
	}
	read(logfile.NewReader(records()))
	want := []any{uint64(42), inode, inode.ID, sparse, original, name{1, "b", inode.ID}, name{dir: 1, name: "c"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded\n%+v, want\n%+v", got, want)
	}
	all := records()
	for n := range len(all) - 1 {
		skip, whole := logfile.NewReader(all[:n]), 0
		for skip.More() {
			if skip.Skip(skip.Kind()); !skip.Bad {
				whole++
			}
		}
		if whole > 6 || !skip.Bad && n > 0 && whole == 0 {
			t.Errorf("%d of %d bytes have %d whole records, bad %v", n, len(all), whole, skip.Bad)
		}
	}
	unknown := logfile.NewReader([]byte{'?'})
	if unknown.Skip(unknown.Kind()); !unknown.Bad {
		t.Error("a record of an unknown kind is no error")
	}
}

// TestFramesTakeEffectWhollyOrNotAtAll truncates a log in its last frame, and damages its first.
func TestFramesTakeEffectWhollyOrNotAtAll(t *testing.T) {
	d := newLayer(t)
	must(t, d.MarkOpen())
	must(t, d.Append(records()))
	must(t, d.Sync())
	before := d.Size
	must(t, d.Append([]byte("g\x01")))
	path := d.Path
	d.Close()
	count := func() (frames int, d *logfile.Layer, err error) {
		d, err = logfile.Open(path, false)
		must(t, err)
		defer d.Close()
		err = d.Frames(func([]byte) error { frames++; return nil })
		return frames, d, err
	}
	if n, d, err := count(); n != 3 || err != nil || d.Torn {
		t.Fatalf("%d frames, torn %v, %v; want 3", n, d.Torn, err)
	}
	must(t, os.Truncate(path+"/log", before+5))
	if n, d, err := count(); n != 2 || err != nil || !d.Torn || d.Size != before {
		t.Errorf("a torn log has %d frames up to %d, torn %v, %v; want 2 up to %d", n, d.Size, d.Torn, err, before)
	}
	log, err := os.ReadFile(path + "/log")
	must(t, err)
	log[len(logfile.Magic)+3]++ // the length of the first frame
	must(t, os.WriteFile(path+"/log", log, 0o600))
	if _, _, err := count(); !errors.Is(err, logfile.ErrDamaged) {
		t.Errorf("a damaged log gives %v, want %v", err, logfile.ErrDamaged)
	}
	must(t, os.WriteFile(path+"/log", []byte("something else"), 0o600))
	if _, _, err := count(); !errors.Is(err, logfile.ErrDamaged) {
		t.Errorf("a log without the magic word gives %v, want %v", err, logfile.ErrDamaged)
	}
}

// TestTornLogIsTruncatedAndBackedUp: what a kill cannot have left is copied to log.damaged.
func TestTornLogIsTruncatedAndBackedUp(t *testing.T) {
	d := newLayer(t)
	must(t, d.Append(records()))
	whole := d.Size
	must(t, d.Append(records()))
	log, err := os.ReadFile(d.Path + "/log")
	must(t, err)
	log[len(log)-1] ^= 0x55
	must(t, os.WriteFile(d.Path+"/log", log, 0o600))
	must(t, d.Frames(func([]byte) error { return nil }))
	if !d.Torn || d.Size != whole {
		t.Fatalf("torn %v at %d, want %d", d.Torn, d.Size, whole)
	}
	must(t, d.TruncateTorn())
	if st, err := os.Stat(d.Path + "/log"); err != nil || st.Size() != whole {
		t.Errorf("the log has %d bytes, %v; want %d", st.Size(), err, whole)
	}
	if backup, err := os.ReadFile(d.Path + "/log.damaged"); err != nil || !slices.Equal(backup, log) {
		t.Errorf("the backup differs from the log, %v", err)
	}
	if n, err := logfile.AsideBytes(d.Path); n == 0 || err != nil {
		t.Errorf("%d bytes are set aside, %v", n, err)
	}
}

// TestLayerIsCleanAfterItsMark, and has one owner.
func TestLayerIsCleanAfterItsMark(t *testing.T) {
	path := t.TempDir() + "/layer"
	if logfile.IsLayer(path) {
		t.Error("nothing is a layer")
	}
	must(t, logfile.Make(path))
	state := func() bool {
		clean, release, err := logfile.TryLock(path)
		must(t, err)
		release()
		return clean
	}
	if !logfile.IsLayer(path) || !state() {
		t.Error("a new layer is not clean")
	}
	d, err := logfile.Open(path, true)
	must(t, err)
	must(t, d.Frames(func([]byte) error { return nil }))
	must(t, d.MarkOpen())
	for name, err := range map[string]error{
		"a second owner": func() error { _, err := logfile.Open(path, true); return err }(),
		"a lock":         func() error { _, _, err := logfile.TryLock(path); return err }(),
		"exclusive use":  logfile.WithExclusive(path, func() error { return nil }),
	} {
		if !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s of an open layer gives %v, want EBUSY", name, err)
		}
	}
	d.Close()
	if state() {
		t.Error("an open layer counts as clean")
	}
	d, err = logfile.Open(path, true)
	must(t, err)
	must(t, d.Frames(func([]byte) error { return nil }))
	must(t, d.MarkClean())
	d.Close()
	if !state() {
		t.Error("a closed layer is not clean")
	}
	must(t, logfile.WithExclusive(path, func() error { return nil }))
}

// TestOrphansAreSetAsideIfFramesWereLost, and deleted if the log is whole.
func TestOrphansAreSetAsideIfFramesWereLost(t *testing.T) {
	d := newLayer(t)
	content := func(id uint64) {
		fd, err := d.OpenContent(id, unix.O_RDWR, true)
		must(t, err)
		unix.Close(fd)
	}
	const gone, unknown = logfile.FirstOwnIno + 1, logfile.FirstOwnIno + 2
	var w logfile.Writer
	w.Gone(gone)
	must(t, d.Append(w))
	content(gone)
	content(unknown)
	if some, err := d.HasContent(); !some || err != nil {
		t.Fatalf("the layer has content %v, %v", some, err)
	}
	o, err := d.Orphans(true)
	must(t, err)
	must(t, o.Dispose(gone))
	must(t, o.Dispose(unknown))
	found, err := os.ReadDir(d.Path + "/found")
	if err != nil || len(found) != 1 {
		t.Errorf("%d files are set aside, %v; want the one with an unknown inode", len(found), err)
	}
	content(unknown)
	must(t, d.SetAside(unknown)) // under another name
	must(t, d.SetAside(unknown)) // there is none
	if found, err = os.ReadDir(d.Path + "/found"); err != nil || len(found) != 2 {
		t.Errorf("%d files are set aside, %v; want 2", len(found), err)
	}
	content(unknown)
	o, err = d.Orphans(false)
	must(t, err)
	must(t, o.Dispose(unknown))
	if some, err := d.HasContent(); some || err != nil {
		t.Errorf("the layer has content %v, %v", some, err)
	}
}

// replay returns the inodes and names that a log leaves.
func replay(t *testing.T, d *logfile.Layer) (inodes map[uint64]int64, names map[string]uint64) {
	t.Helper()
	inodes, names = map[uint64]int64{}, map[string]uint64{}
	must(t, d.Records(func(kind byte, r *logfile.Reader) {
		switch kind {
		case logfile.KindInode:
			n := r.Inode()
			inodes[n.ID] = n.Size
		case logfile.KindGone:
			delete(inodes, r.Gone())
		case logfile.KindName:
			_, name, to := r.Name()
			names[name] = to
		case logfile.KindUnname:
			_, name := r.Unname()
			delete(names, name)
		default:
			r.Skip(kind)
		}
	}))
	return inodes, names
}

// TestDigestHasTheSameEffectAsTheLog: it drops superseded records, but not those that cancel one of a layer below.
func TestDigestHasTheSameEffectAsTheLog(t *testing.T) {
	below, d := newLayer(t), newLayer(t)
	const own, lower = logfile.FirstOwnIno + 1, 5
	var w logfile.Writer
	n := logfile.Inode{ID: lower, LowerPath: "x", Size: 1}
	w.Inode(&n)
	w.Name(1, "hidden", 0)
	must(t, below.Append(w))
	for i := range 10 {
		w = nil
		n := logfile.Inode{ID: own, Size: int64(i)}
		w.Inode(&n)
		w.Name(1, "own", own)
		w.Gone(lower)
		w.Unname(1, "hidden")
		w.Unname(1, "unneeded")
		must(t, d.Append(w))
	}
	g, needed := logfile.NewDigest(), logfile.NewDigest()
	must(t, d.Records(g.Add))
	must(t, below.Records(func(kind byte, r *logfile.Reader) { g.Need(needed, kind, r) }))
	inodes, names := replay(t, d)
	before := d.Size
	must(t, d.Replace(g.Records(needed)))
	must(t, d.RemoveTemp())
	if d.Size*4 > before {
		t.Errorf("the log has %d bytes, and had %d", d.Size, before)
	}
	againInodes, againNames := replay(t, d)
	if !maps.Equal(inodes, againInodes) || !maps.Equal(names, againNames) {
		t.Errorf("the log gives %v %v, and gave %v %v", againInodes, againNames, inodes, names)
	}
	kinds := map[byte]int{}
	must(t, d.Records(func(kind byte, r *logfile.Reader) { kinds[kind]++; r.Skip(kind) }))
	if want := map[byte]int{logfile.KindGone: 1, logfile.KindUnname: 1, logfile.KindInode: 1, logfile.KindName: 1}; !maps.Equal(kinds, want) {
		t.Errorf("the log has records %v, want %v", kinds, want)
	}
}

// TestMergeLinksContentIntoOneLayer, which occupies the indexes of both.
func TestMergeLinksContentIntoOneLayer(t *testing.T) {
	dir := t.TempDir()
	paths := []string{dir + "/0", dir + "/1"}
	const id = logfile.FirstOwnIno + 1
	for i, path := range paths {
		d, err := logfile.Open(path, true)
		must(t, err)
		var w logfile.Writer
		n := logfile.Inode{ID: id + uint64(i), Mode: unix.S_IFREG, Size: 4, Layer: logfile.Index(i)}
		w.Inode(&n)
		w.Name(1, path, n.ID)
		must(t, d.Append(w))
		must(t, d.MarkClean())
		fd, err := d.OpenContent(n.ID, unix.O_RDWR, true)
		must(t, err)
		_, err = unix.Write(fd, []byte("text"))
		must(t, errors.Join(err, unix.Close(fd)))
		d.Close()
	}
	must(t, logfile.Merge(logfile.Stack{Layers: paths}, 0, 2, dir+"/merged"))
	d, err := logfile.Open(dir+"/merged", false)
	must(t, err)
	defer d.Close()
	inodes, names := replay(t, d)
	if len(inodes) != 2 || len(names) != 2 {
		t.Errorf("the merged layer has %v %v", inodes, names)
	}
	for i := range uint64(2) {
		if text, err := os.ReadFile(d.Path + "/" + logfile.ContentPath(id+i)); err != nil || string(text) != "text" {
			t.Errorf("content %d is %q, %v", i, text, err)
		}
	}
	must(t, os.MkdirAll(paths[1]+"/found/1", 0o700))
	if err := logfile.Merge(logfile.Stack{Layers: paths}, 0, 2, dir+"/again"); !errors.Is(err, logfile.ErrNotMergeable) {
		t.Errorf("merging a layer that has set something aside gives %v", err)
	}
	m := logfile.NewMentions()
	must(t, errors.Join(m.Add(paths[0]), m.Add(paths[1])))
	if len(m.Inodes) != 2 || len(m.Names) != 2 {
		t.Errorf("the logs mention %v", m)
	}
}

// TestOriginalsKeepTheEarliestOfAPath with its content.
func TestOriginalsKeepTheEarliestOfAPath(t *testing.T) {
	d := newLayer(t)
	from, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer from.Close()
	_, err = from.WriteString("as it was")
	must(t, err)
	var w logfile.Writer
	for i := range 2 {
		o := logfile.Original{Path: "a", ID: 3, Copy: d.SaveOriginal(3, from)}
		o.Stat.Size = int64(i)
		w.Original(&o)
		if o.Copy != uint64(i)+1 {
			t.Errorf("copy %d is number %d", i, o.Copy)
		}
	}
	must(t, d.Append(w))
	all, err := logfile.Originals([]string{d.Path})
	must(t, err)
	if len(all) != 1 || all[0].Stat.Size != 0 {
		t.Fatalf("the log has %+v", all)
	}
	if text, err := os.ReadFile(all[0].File); err != nil || string(text) != "as it was" {
		t.Errorf("the original is %q, %v", text, err)
	}
	d.RemoveOriginal(&all[0])
	if _, err := os.Stat(all[0].File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed copy gives %v", err)
	}
}
