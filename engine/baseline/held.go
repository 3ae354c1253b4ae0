package baseline

import (
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// latestHeld returns which version of a real file the sandbox started from, with its bytes. e is the
// original, with the bytes data; the user may have changed the file since, before the sandbox changed it. The
// result is the newest version whose changes since e are all in the sandbox's text. If the text lacks one, a
// program may have read the file before that change. Thus a line that the user wrote is never taken for one
// that the sandbox removed. The result has the permissions, owner and extended attributes of e: if the sandbox's
// file has others, the sandbox has set them, or they are those of the real file. now is the real node.
func (k *pathRecorder) latestHeld(path string, now *diff.Node, e Entry, data []byte) (Entry, []byte) {
	mine := k.ownText(path)
	if data == nil || mine == nil || k.holds == nil {
		return e, data
	}
	if text := k.realText(path, now); text != nil && k.holds(data, mine, text) {
		return Entry{Node: withAttributesOf(e.Node, now)}, text
	}
	abs := filepath.Join(k.tree, path)
	for _, d := range slices.Backward(k.history().all) {
		v := d.baseline.Nodes[abs]
		if text := d.text(&v); v.Node != nil && text != nil && k.holds(data, mine, text) {
			return Entry{Node: withAttributesOf(e.Node, v.Node)}, text
		}
	}
	return e, data
}

// withAttributesOf returns a copy of n with the permissions, owner and extended attributes of from.
func withAttributesOf(from, n *diff.Node) *diff.Node {
	if from == nil {
		return n
	}
	copied := *n
	copied.Mode, copied.UID, copied.GID, copied.Xattrs = from.Mode, from.UID, from.GID, from.Xattrs
	return &copied
}

// ownText returns the bytes of the sandbox's version of the file at a path if it is a small text, else nil.
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
	if n == nil {
		return nil
	}
	return textOf(&k.base.Real, path, n)
}
