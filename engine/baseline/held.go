package baseline

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// latestHeld returns which version of a real file the sandbox started from, with its bytes. e is the
// original, with the bytes data; the user may have changed the file since, before the sandbox changed it. The
// result is the newest version whose changes since e are all in the sandbox's text. If the text lacks one, a
// program may have read the file before that change. Thus a line that the user wrote is never taken for one
// that the sandbox removed. now is the real node.
func (k *pathRecorder) latestHeld(path string, now *diff.Node, e Entry, data []byte) (Entry, []byte) {
	mine := k.ownText(path)
	if data == nil || mine == nil || k.holds == nil {
		return e, data
	}
	if text := k.realText(path, now); text != nil && k.holds(data, mine, text) {
		return Entry{Node: now}, text
	}
	abs := filepath.Join(k.tree, path)
	for _, d := range slices.Backward(k.history().all) {
		v := d.baseline.Nodes[abs]
		if text := d.text(&v); v.Node != nil && text != nil && k.holds(data, mine, text) {
			return Entry{Node: v.Node}, text
		}
	}
	return e, data
}

// ownText returns the bytes of the sandbox's file at a path if it is a small text, else nil.
func (k *pathRecorder) ownText(path string) []byte {
	tree, err := k.base.OpenFork()
	if err != nil {
		return nil
	}
	l := RootedReader{Root: tree}
	defer l.Close()
	data, _ := readText(&l, path)
	return data
}

// realText returns the bytes of the real file at a path if it is a small text and still the file n, else nil.
func (k *pathRecorder) realText(path string, n *diff.Node) []byte {
	data, st := readText(&k.base.Real, path)
	if n == nil || int64(len(data)) != n.Size || st.Ino != n.Ino || !st.CTime.Time().Equal(n.CTime) {
		return nil
	}
	return data
}

// readText reads a file of at most maxText bytes without a NUL, and returns its attributes after that. It
// returns nil for another file, or one that cannot be read.
func readText(l *RootedReader, path string) ([]byte, vfs.Stat) {
	f, err := l.Open(path)
	if err != nil {
		return nil, vfs.Stat{}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText+1))
	st, serr := vfs.Lstat(int(f.Fd()), "")
	if err != nil || serr != nil || len(data) > maxText || bytes.IndexByte(data, 0) >= 0 {
		return nil, vfs.Stat{}
	}
	return data, st
}
