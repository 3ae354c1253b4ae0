package promote

import (
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Source is where the content of new versions is read. Everything else of them
// stands in the changes.
type Source struct {
	// Tree is the sandbox's tree, open. Most content lies there, under the path of
	// its change. It may change meanwhile: a file that is not as its change
	// describes it any more is ErrConflict.
	Tree *os.File
	// Built is a private directory, open, where the content of the paths in In
	// lies: what neither side had before they were merged. Nobody writes there
	// during a promotion. Both may be nil.
	Built *os.File
	In    map[string]bool
	// From names content that lies in Tree under another path than that of its
	// change: by the path of the change. A directory's name says nothing of what
	// lies beneath it. May be nil.
	From map[string]string
}

// at says where the content of a path lies.
func (s Source) at(path string) (*os.File, string) {
	if s.In[path] {
		return s.Built, path
	}
	if other, ok := s.From[path]; ok {
		return s.Tree, other
	}
	return s.Tree, path
}

// steady reports whether an open file of the source is as its change describes
// it. A merged change may have been given another time than the file it comes
// from: then the change time alone must tell.
func (s Source) steady(f *os.File, c *diff.Change) bool {
	st, err := vfs.Lstat(int(f.Fd()), "")
	return err == nil && s.steadyAs(&st, c)
}

// steadyAs is steady for a file whose stat is known.
func (s Source) steadyAs(st *vfs.Stat, c *diff.Change) bool {
	switch n := c.New; {
	case st.Size != n.Size:
		return false
	case s.In[c.Path]:
		return true
	case !n.CTime.IsZero():
		return st.CTime.Time().Equal(n.CTime)
	default:
		return st.MTime.Time().Equal(n.MTime)
	}
}
