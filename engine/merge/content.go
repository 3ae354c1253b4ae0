package merge

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// halfCopied is the reason of a conflict at a file of which the sandbox copied only a part (its attributes, or some
// blocks of a large one), where the rest was in the real file and was overwritten there: reading it is ESTALE.
const halfCopied = "changed on both sides, and the sandbox has copied only a part of the file; the rest was in the real file, which was written to since"

// mergeContents merges the content of a regular file that sandbox and real tree both changed, as its content
// in the merged tree. conflict is true if the content cannot be merged; it has then reported a conflict.
func (m *merger) mergeContents(t *entry) (conflict bool, err error) {
	a, b := t.on[mine].node, t.on[real].node
	same, err := m.sameContent(t)
	if errors.Is(err, unix.ESTALE) {
		return true, m.report(t, NoBase, halfCopied)
	}
	if err != nil || same {
		return false, err
	}
	texts, ok, err := m.texts(t)
	switch {
	case errors.Is(err, unix.ESTALE):
		return true, m.report(t, NoBase, halfCopied)
	case errors.Is(err, errs.ErrNotFound):
		return true, m.report(t, NoBase, "changed on both sides, and the original is no longer available")
	case err != nil:
		return false, err
	case !ok:
		return true, m.report(t, Binary, "changed on both sides, and not a text file")
	}
	three := newTriple(texts[base], texts[mine], texts[real])
	all := three.merge()
	if all.conflicts() > 0 {
		return true, m.report(t, Content, "changed on both sides: "+all.lines())
	}
	merged := three.write(all, Names{})
	n := t.outcome.node
	switch {
	case bytes.Equal(merged, texts[real]):
		return false, nil
	case bytes.Equal(merged, texts[mine]):
		t.outcome.from, n.Size, n.MTime, n.CTime, n.Ino, n.Dev, n.NLink = fromMine, a.Size, a.MTime, a.CTime, a.Ino, a.Dev, a.NLink
		return false, nil
	}
	return false, m.build(t, bytes.NewReader(merged), mergedTime(a, b))
}

// texts reads the base's, the sandbox's and the real version of a file. ok is false if one is not text.
// ErrNotFound: the base's version is no longer available.
func (m *merger) texts(t *entry) (texts [3][]byte, ok bool, err error) {
	for _, s := range t.on {
		if s.node != nil && s.node.Size > TextMax {
			return texts, false, nil
		}
	}
	for tree, s := range t.on {
		if s.node == nil {
			continue
		}
		f, err := m.in.open(tree, s)
		if err != nil {
			return texts, false, err
		}
		all := bytes.NewBuffer(make([]byte, 0, s.node.Size+bytes.MinRead))
		_, err = all.ReadFrom(io.LimitReader(f, TextMax+1))
		f.Close()
		if err != nil {
			return texts, false, fail(s.path, err)
		}
		if texts[tree] = all.Bytes(); isBinary(texts[tree]) {
			return texts, false, nil
		}
	}
	return texts, true, nil
}

// open opens the regular file s of a tree, which is base, mine or real; the caller closes it. ErrBusy: the
// file no longer matches the list of changes that the merge was given.
func (in *Input) open(tree int, s state) (*os.File, error) {
	if tree == base {
		if in.OpenBase == nil {
			return nil, &errs.Error{Op: op, Path: s.path, Kind: errs.ErrNotFound}
		}
		f, err := in.OpenBase(s.path)
		return f, fail(s.path, err)
	}
	root := in.MineTree
	if tree == real {
		root = in.RealTree
	}
	f, err := diff.OpenFile(int(root.Fd()), s.path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, changedMeanwhile(s.path)
	case err != nil:
		return nil, fail(s.path, err)
	}
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err == nil && (!st.IsRegular() || st.Size != s.node.Size || !st.MTime.Time().Equal(s.node.MTime)) {
		err = changedMeanwhile(s.path)
	}
	if err != nil {
		f.Close()
		return nil, fail(s.path, err)
	}
	return f, nil
}

// changedMeanwhile returns the error for a file of the real tree or the sandbox that another process changed
// during the merge.
func changedMeanwhile(path string) error {
	return &errs.Error{Op: op, Path: path, Kind: errs.ErrBusy, Err: errors.New("the file changed during the merge")}
}

// sameContent reports whether the sandbox's and the real version of a regular file have the same content.
func (m *merger) sameContent(t *entry) (bool, error) {
	return m.equal(t.on[mine], t.on[real])
}

// equal reports whether the regular file a of the sandbox and b of the real tree have the same content.
func (m *merger) equal(a, b state) (bool, error) {
	if a.node.Size != b.node.Size {
		return false, nil
	}
	f, err := m.in.open(mine, a)
	if err != nil {
		return false, err
	}
	defer f.Close()
	g, err := m.in.open(real, b)
	if err != nil {
		return false, err
	}
	defer g.Close()
	same, err := diff.SameBytes(m.ctx, f, g)
	return same, fail(a.path, err)
}

// copyReal copies the real tree's version of a file to Scratch, because the file has another path in the
// merged tree.
func (m *merger) copyReal(t *entry) error {
	f, err := m.in.open(real, t.on[real])
	if err != nil {
		return err
	}
	defer f.Close()
	return m.build(t, f, t.on[real].node.MTime)
}

// changedContent reports whether the merge changes the content at one path of the real tree. was is the file
// that the real tree has there, and is the one of the merged tree.
func (m *merger) changedContent(was, is *entry) (bool, error) {
	if was == is {
		a, b := is.on[mine], is.on[real]
		const any = diff.Content | diff.Type
		switch {
		case is.outcome.from == fromReal:
			return false, nil
		case is.outcome.from == built, a.what&any != 0 && b.what&any == 0:
			return true, nil
		case is.has(base) && a.what&any == 0 && b.what&any == 0:
			return false, nil
		}
	}
	if is.outcome.from != fromMine {
		return true, nil
	}
	same, err := m.equal(is.on[mine], was.on[real])
	return !same, err
}
