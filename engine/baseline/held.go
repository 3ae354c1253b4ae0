package baseline

import (
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// latestHeld returns the version of a file that the sandbox began with: of those that the real tree had since the
// original e with the bytes data, the newest one whose changes since e the sandbox's text has, all of them. Where its
// text lacks one, a program may have read the file before that change. So what the user wrote is never taken for
// something that the sandbox removed. now is the real node.
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

// ownText returns the bytes of the sandbox's small text at a path, nil if there is none.
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

// realText returns the bytes of a small text of the real tree that is n, nil if it is another file by now.
func (k *pathRecorder) realText(path string, n *diff.Node) []byte {
	if n == nil {
		return nil
	}
	return textOf(&k.base.Real, path, n)
}
