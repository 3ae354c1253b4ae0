package patch

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A source reads files of the old tree (side 0) and the new tree (side 1) for a patch.
type source struct {
	ctx  context.Context
	root [2]*os.File
}

// A blob is the content of a changed file, for a patch, in the form in which git stores and identifies it.
type blob struct {
	id     string // git's object id, forty zeros for no file
	side   int
	node   *diff.Node
	size   int64
	binary bool
	text   []byte // nil if binary
}

const noID = "0000000000000000000000000000000000000000"

// load reads the size, kind and hash of a file of one tree, old or new (side), for a patch; the content stays
// in memory only for a text.
func (s *source) load(side int, path string, n *diff.Node) (blob, error) {
	b := blob{id: noID, side: side, node: n}
	if n == nil {
		return b, nil
	}
	r, size, err := s.open(b, path)
	if err != nil {
		return b, err
	}
	defer func() { _ = r.Close() }()
	b.size = size
	hash := sha1.New()
	fmt.Fprintf(hash, "blob %d\x00", size)
	var text bytes.Buffer
	to := io.Writer(hash)
	if b.binary = size > TextMax; !b.binary {
		to = io.MultiWriter(hash, &text)
	}
	if copied, err := io.Copy(to, r); err != nil || copied != size {
		return b, s.fail(path, err)
	}
	b.id = hex.EncodeToString(hash.Sum(nil))
	if b.binary = b.binary || diff.IsBinary(text.Bytes()); !b.binary {
		b.text = text.Bytes()
	}
	return b, nil
}

// open returns a reader of the content of a file that a patch shows, or of a symbolic link's target, and its
// size. The caller closes the reader.
func (s *source) open(b blob, path string) (io.ReadCloser, int64, error) {
	if b.node.Mode.Type() == fs.ModeSymlink {
		return io.NopCloser(strings.NewReader(b.node.Target)), int64(len(b.node.Target)), nil
	}
	f, err := s.openFile(b.side, path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, s.fail(path, err)
	}
	r := struct {
		io.Reader
		io.Closer
	}{diff.Reader(s.ctx, io.LimitReader(f, info.Size())), f}
	return r, info.Size(), nil
}

// openFile opens a regular file of the old (side 0) or new (side 1) tree, for a patch. The caller closes it.
func (s *source) openFile(side int, path string) (*os.File, error) {
	f, err := diff.OpenFile(int(s.root[side].Fd()), path)
	if err != nil {
		return nil, s.fail(path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errChanged
	}
	if err != nil {
		f.Close()
		return nil, s.fail(path, err)
	}
	return f, nil
}

var errChanged = errors.New("the file changed while it was read")

func (s *source) fail(path string, err error) error {
	if err == nil {
		err = errChanged
	}
	kind := errs.KindOf(err)
	switch {
	case kind != nil:
	case errors.Is(err, errChanged):
		kind = errs.ErrBusy
	default:
		kind = errs.ErrCorrupt
	}
	return &errs.Error{Op: "reading for the patch", Path: path, Kind: kind, Err: snapshot.ExplainStale(err)}
}
