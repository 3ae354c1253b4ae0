package promote

import (
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Source says where a promotion finds the content of new files: in the sandbox's tree, or in a directory of
// merged files. Everything else about a file is in its change.
type Source struct {
	// Tree is the sandbox's tree, open. It has most content, at the path of its change. It may change meanwhile: a
	// file that no longer matches its change is an ErrConflict.
	Tree *os.File
	// Built is a private directory, open, with the content of the paths in In: merged files that neither side had. It
	// does not change during a promotion. Both may be nil.
	Built *os.File
	In    map[string]bool
	// From maps the path of a change to another path of Tree that has its content. An
	// entry for a directory does not apply to paths below it. May be nil.
	From map[string]string
}

// At returns the directory tree in which the new content for the changed file at path is, and the content's
// path in that tree.
func (s Source) At(path string) (*os.File, string) {
	if s.In[path] {
		return s.Built, path
	}
	if other, ok := s.From[path]; ok {
		return s.Tree, other
	}
	return s.Tree, path
}

// matches reports whether an open file of the sandbox is still the one that its change describes. A merged change may
// have another modification time than that file; then only the change time counts.
func (s Source) matches(f *os.File, c *diff.Change) bool {
	st, err := vfs.Lstat(int(f.Fd()), "")
	return err == nil && s.matchesStat(&st, c)
}

// matchesStat reports whether a file of the sandbox with the attributes st is still the one that its change
// describes. A merged change may have another modification time than that file.
func (s Source) matchesStat(st *vfs.Stat, c *diff.Change) bool {
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
