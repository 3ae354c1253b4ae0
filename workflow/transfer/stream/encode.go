package stream

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/sendstream"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Encode writes the commands that turn the tree old into the tree new, as a stream of
// snapshot.FormCommands. changes are all differences that package diff finds. With onBase the
// receiver has old, otherwise an empty directory. A file with added or removed hard links is
// sent whole.
//
// Cost: proportional to the changes, and to the differing parts of files.
// Errors: those of w, and of reading the trees.
func Encode(ctx context.Context, w io.Writer, old, new *os.File, changes []diff.Change, onBase bool) error {
	e := &encoder{ctx: ctx, s: sendstream.NewWriter(w, onBase), onBase: onBase, old: old, new: new, changedDirs: map[string]bool{}}
	for _, c := range slices.Backward(changes) {
		if c.Kind == diff.Deleted || recreated(&c) {
			e.s.Remove(c.Path, c.Old.Mode.IsDir())
			e.changedDirs[path.Dir(c.Path)] = true
		}
	}
	if onBase {
		if err := e.findUnchanged(changes); err != nil {
			return err
		}
	}
	for i := range changes {
		if err := e.change(&changes[i]); err != nil {
			return err
		}
	}
	if err := e.dirs(changes); err != nil {
		return err
	}
	return e.s.End()
}

// recreated reports whether the change c, of a path that existed, is sent in the stream as removing the old
// file and creating a new one: its type, link target, device number or number of names changed.
func recreated(c *diff.Change) bool {
	return c.Kind == diff.Modified && c.What&(diff.Type|diff.Target|diff.Device|diff.Links) != 0 &&
		(c.What&diff.Type != 0 || !c.New.Mode.IsDir())
}

type encoder struct {
	ctx      context.Context
	s        *sendstream.Writer
	onBase   bool
	old, new *os.File
	// changedDirs has the directories in which names, and so the time, change.
	changedDirs map[string]bool
	// unchanged maps the inode of a file with new hard links to an unchanged name, which the
	// changes do not mention.
	unchanged map[uint64]string
	buf       []byte
}

// findUnchanged finds the unchanged names of files that got further hard links, so that these can be sent as
// links in the stream. It walks the new tree if there may be any.
func (e *encoder) findUnchanged(changes []diff.Change) error {
	names, wanted, changed := map[uint64]uint32{}, map[uint64]bool{}, map[string]bool{}
	for i := range changes {
		if c := &changes[i]; c.New != nil {
			changed[c.Path] = true
			names[c.New.Ino]++
		}
	}
	for i := range changes {
		if c := &changes[i]; c.New != nil && !c.New.Mode.IsDir() && c.New.NLink > names[c.New.Ino] && (c.Kind == diff.Added || recreated(c)) {
			wanted[c.New.Ino] = true
		}
	}
	e.unchanged = map[uint64]string{}
	if len(wanted) == 0 {
		return nil
	}
	top := vfs.FDPath(e.new) + "/"
	return filepath.WalkDir(top+".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if name := strings.TrimPrefix(at, top); ok && wanted[st.Ino] && !changed[name] {
			e.unchanged[st.Ino] = name
		}
		return e.ctx.Err()
	})
}

func (e *encoder) change(c *diff.Change) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	made := c.Kind == diff.Added || recreated(c)
	if made {
		e.changedDirs[path.Dir(c.Path)] = true
	}
	switch {
	case c.Kind == diff.Deleted, c.New.Mode.IsDir() && !made:
		return nil
	case made && c.New.LinkOf == "" && e.unchanged[c.New.Ino] != "":
		e.s.Link(c.Path, e.unchanged[c.New.Ino])
		return e.s.Err()
	case c.New.LinkOf != "":
		if made {
			e.s.Link(c.Path, c.New.LinkOf)
		}
		return e.s.Err() // sent with the other name
	}
	st, err := e.stat(c.Path)
	if err != nil {
		return err
	}
	if made {
		e.s.Make(c.Path, &st, c.New.Target)
	}
	if c.New.Mode.IsDir() {
		return e.s.Err() // its metadata is sent last
	}
	if c.New.Mode.IsRegular() && (made || c.What&diff.Content != 0) {
		if err := e.content(c, made); err != nil {
			return err
		}
	}
	e.meta(c, &st, made)
	return e.s.Err()
}

// meta writes all metadata of the changed file c, whose inode's is st, to the stream. It writes all, because
// a write clears capabilities, and a change of mode changes an access control list. made is set if the
// receiver has just created the file.
func (e *encoder) meta(c *diff.Change, st *vfs.Stat, made bool) {
	e.s.Own(c.Path, st)
	if !made {
		for name := range c.Old.Xattrs {
			if _, stays := c.New.Xattrs[name]; !stays {
				e.s.RemoveXattr(c.Path, name)
			}
		}
	}
	names := make([]string, 0, len(c.New.Xattrs))
	for name := range c.New.Xattrs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		e.s.SetXattr(c.Path, name, c.New.Xattrs[name])
	}
	e.s.Times(c.Path, st)
}

// content writes to the stream the commands that give the file of c its new content: its whole content if
// made is set, else only the parts that differ from the old tree's.
func (e *encoder) content(c *diff.Change, made bool) error {
	now, err := diff.OpenFile(int(e.new.Fd()), c.Path)
	if err != nil {
		return err
	}
	defer now.Close()
	var was *os.File
	if !made {
		if was, err = diff.OpenFile(int(e.old.Fd()), c.Path); err != nil {
			return err
		}
		defer was.Close()
	}
	st, err := vfs.Lstat(int(now.Fd()), "")
	if err != nil {
		return err
	}
	if !made {
		e.s.Truncate(c.Path, st.Size)
	}
	err = diff.Extents(e.ctx, was, now, func(x diff.Extent) error { return e.extent(c.Path, now, x) })
	if made {
		e.s.Truncate(c.Path, st.Size) // it may end in a hole
	}
	return err
}

func (e *encoder) extent(name string, f *os.File, x diff.Extent) error {
	if e.buf == nil {
		e.buf = make([]byte, sendstream.Chunk)
	}
	for at := x.Offset; at < x.Offset+x.Length; {
		n, err := f.ReadAt(e.buf[:min(sendstream.Chunk, x.Offset+x.Length-at)], at)
		if n == 0 {
			return err
		}
		e.s.Write(name, at, e.buf[:n])
		at += int64(n)
	}
	return e.s.Err()
}

// dirs writes the metadata of the changed directories to the stream, from the bottom up, because creating a
// file in a directory changes the directory's time.
func (e *encoder) dirs(changes []diff.Change) error {
	dirs := map[string]*diff.Change{}
	for i := range changes {
		if c := &changes[i]; c.New != nil && c.New.Mode.IsDir() {
			dirs[c.Path], e.changedDirs[c.Path] = c, true
		}
	}
	if !e.onBase { // the receiver's root is empty, unlike the sender's
		attrs, err := vfs.Xattrs(int(e.new.Fd()), "")
		if err != nil {
			return err
		}
		maps.DeleteFunc(attrs, func(name, _ string) bool { return vfs.OverlayXattr(name) })
		dirs["."], e.changedDirs["."] = &diff.Change{Path: ".", Kind: diff.Added, New: &diff.Node{Xattrs: attrs}}, true
	}
	all := make([]string, 0, len(e.changedDirs))
	for dir := range e.changedDirs {
		all = append(all, dir)
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(b, a) })
	for _, dir := range all {
		st, err := e.stat(dir)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			continue // deleted with its parent
		case err != nil:
			return err
		}
		if !st.IsDir() {
			continue
		}
		at := dir
		if at == "." {
			at = ""
		}
		if c := dirs[dir]; c != nil {
			sent := *c
			sent.Path = at
			e.meta(&sent, &st, c.Kind == diff.Added || recreated(c))
		} else {
			e.s.Times(at, &st)
		}
	}
	return e.s.Err()
}

// stat returns the inode metadata of the file name in the new one of the two trees whose difference is
// written to the stream.
func (e *encoder) stat(name string) (vfs.Stat, error) {
	if name == "." {
		return vfs.Lstat(int(e.new.Fd()), "")
	}
	f, err := vfs.OpenBeneath(int(e.new.Fd()), name, vfs.OPath|unix.O_NOFOLLOW, 0)
	if err != nil {
		return vfs.Stat{}, err
	}
	defer f.Close()
	return vfs.Lstat(int(f.Fd()), "")
}
