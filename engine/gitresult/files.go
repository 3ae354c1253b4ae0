package gitresult

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/gitrepo"
	"github.com/snapfs/snapfs/internal/vfs"
)

// readOwner stores the uid and gid of the real repository's objects directory in p; files that a promotion
// creates in the repository get these.
func (p *Result) readOwner() error {
	st, err := p.repo.real.Stat("objects")
	p.uid, p.gid = st.UID, st.GID
	return err
}

func (p *Result) realDir() gitrepo.Dir { return gitrepo.Dir{Root: p.repo.trees.Real, Path: "."} }

// locked returns ErrBusy if a git process has locked the file called name in the real git repository, that
// is, if NAME.lock exists.
func (p *Result) locked(name string) error {
	if _, err := p.realDir().Stat(name + ".lock"); err == nil {
		return &errs.Error{
			Op: "promoting to", Path: path.Join(p.repo.trees.Path, name) + ".lock", Kind: errs.ErrBusy,
			Err: errors.New("another git process is changing the repository, or was killed"),
		}
	}
	return nil
}

// node returns the metadata of the file name in the real repository, or nil if there is none. It stores the
// result in p.Seen, so that the promotion can check that the file has not changed since.
func (p *Result) node(name string) (*diff.Node, error) {
	st, err := p.realDir().Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		p.Seen[name] = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := nodeOf(&st)
	p.Seen[name] = n
	return n, nil
}

func nodeOf(st *vfs.Stat) *diff.Node {
	n := &diff.Node{
		Mode: st.FileMode(), UID: st.UID, GID: st.GID, Ino: st.Ino, Dev: st.Dev, NLink: st.Nlink,
		Size: st.Size, MTime: st.MTime.Time(), CTime: st.CTime.Time(),
	}
	if st.IsDir() {
		n.Size = 0
	}
	return n
}

// setRef plans that the real repository's ref name, a file in dir, has the commit to. dir is relative to the trees.
// Errors: errs.ErrExists if git cannot have the ref beside an existing one, such as a/b beside a.
func (p *Result) setRef(dir, name string, to gitrepo.ID) error {
	if name != "HEAD" && !gitrepo.ValidRef(name) {
		return fmt.Errorf("%q is no name for a ref: %w", name, gitrepo.ErrDamaged)
	}
	for other := range p.repo.realRefs {
		if !strings.HasPrefix(name, other+"/") && !strings.HasPrefix(other, name+"/") {
			continue
		}
		git := "git --git-dir=" + errs.Quoted(p.repo.Path())
		return &errs.Error{
			Op: "promoting to", Path: p.repo.Path(), Kind: errs.ErrExists, Err: fmt.Errorf("git cannot have a ref %s beside %s", name, other),
			Hints: []string{git + " update-ref -d " + errs.Quoted(other) + "   # before that, " + git + " branch NAME " + errs.Quoted(other) + " keeps its commits"},
		}
	}
	return p.write(path.Join(dir, name), []byte(to.String()+"\n"), time.Time{})
}

// write plans that the real repository's file name has the content data and the time mtime; a zero mtime
// means p.o.Now. It also plans missing parent directories. If the file has this content already it plans
// nothing.
func (p *Result) write(name string, data []byte, mtime time.Time) error {
	if err := p.locked(name); err != nil {
		return err
	}
	if err := p.makeDirs(path.Dir(name)); err != nil {
		return err
	}
	old, err := p.node(name)
	if err != nil {
		return err
	}
	now := &diff.Node{Mode: 0o644, UID: p.uid, GID: p.gid, NLink: 1}
	c := diff.Change{Path: name, Kind: diff.Added, New: now}
	if old != nil {
		if !old.Mode.IsRegular() {
			return fmt.Errorf("%s is no regular file: %w", name, gitrepo.ErrFormat)
		}
		if before, err := p.realDir().Read(name, int64(len(data))); err == nil && bytes.Equal(before, data) {
			return nil
		}
		c.Kind, c.What, c.Old = diff.Modified, diff.Content|diff.Time, old
		now.Mode, now.UID, now.GID, now.Xattrs = old.Mode, old.UID, old.GID, old.Xattrs
	}
	now.Size, now.MTime = int64(len(data)), mtime
	if mtime.IsZero() {
		now.MTime = p.o.Now
	}
	p.Changes = append(p.Changes, c)
	p.Files[name] = data
	return nil
}

// makeDirs plans the creation of the directory dir, and of its missing parents, in the real repository: it
// adds them to p.Changes.
func (p *Result) makeDirs(dir string) error {
	st, err := p.realDir().Stat(dir)
	switch {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is no directory: %w", dir, gitrepo.ErrFormat)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if slices.ContainsFunc(p.Changes, func(c diff.Change) bool { return c.Path == dir }) {
		return nil
	}
	if err := p.makeDirs(path.Dir(dir)); err != nil {
		return err
	}
	p.Seen[dir] = nil
	p.Changes = append(p.Changes, diff.Change{Path: dir, Kind: diff.Added, New: &diff.Node{
		Mode: fs.ModeDir | 0o755, UID: p.uid, GID: p.gid, MTime: p.o.Now,
	}})
	return nil
}

// moveIndex plans the index of the worktree w that agrees with its branch's new commit: at the changed paths
// it gets the new commit's files. Staged changes at other paths stay; a staged change at one of these is a
// conflict. had is set if the worktree had a commit before; then a missing index stays missing.
func (p *Result) moveIndex(w *worktree, changed []treeChange, had bool) error {
	name := path.Join(w.dir, "index")
	node, err := p.node(name)
	if err != nil || node == nil && had || len(changed) == 0 {
		return err
	}
	x := &gitrepo.Index{}
	mtime := p.o.Now
	if node != nil {
		data, err := p.realDir().Read(name, 1<<30)
		if err != nil {
			return err
		}
		if x, err = gitrepo.ParseIndex(data); err != nil {
			return p.repo.fail(unreadable(err, path.Join(p.repo.trees.Path, name), w.path))
		}
		mtime = node.MTime // entries that are younger stay uncertain for git
	}
	staged := moveEntries(x, changed)
	if len(staged) > 0 {
		p.Conflicts = append(p.Conflicts, Conflict{name, "staged outside, and committed inside: " +
			strings.Join(staged[:min(len(staged), 5)], ", ") + "; commit or unstage it, or bring the commits alone (--as-branch)"})
		return nil
	}
	return p.write(name, x.Bytes(), mtime)
}

// unreadable returns err, the error of parsing the git index at the path index. For a split or sparse index it adds
// the command that converts the index into one that snapfs reads. worktree is the directory of the worktree.
func unreadable(err error, index, worktree string) error {
	if !errors.Is(err, gitrepo.ErrFormat) {
		return err
	}
	mend := "sparse-checkout reapply --no-sparse-index"
	if errors.Is(err, gitrepo.ErrSplit) {
		mend = "update-index --no-split-index"
	}
	return &errs.Error{
		Op: "promoting to", Path: index, Kind: errs.ErrNotSupported, Err: err, Hints: []string{"git -C " + errs.Quoted(worktree) + " " + mend},
	}
}

// moveEntries replaces the index entries at the changed paths by the new tree's version, if they have the old
// tree's. It returns the paths at which the index has neither, because the user has staged something; the
// index is then incomplete.
func moveEntries(x *gitrepo.Index, changed []treeChange) (staged []string) {
	at := map[string][]gitrepo.IndexEntry{}
	for _, c := range changed {
		at[c.path] = nil
	}
	rest := x.Entries[:0:0]
	for _, e := range x.Entries {
		if _, ok := at[e.Name]; ok {
			at[e.Name] = append(at[e.Name], e)
		} else {
			rest = append(rest, e)
		}
	}
	for _, c := range changed {
		have := at[c.path]
		switch {
		case holds(have, c.new):
			rest = append(rest, have...)
		case !holds(have, c.old):
			staged = append(staged, c.path)
		case c.new.Mode != 0:
			e := gitrepo.IndexEntry{Mode: c.new.Mode, ID: c.new.ID, Name: c.path}
			if len(have) > 0 {
				e.Flags, e.Extended = have[0].Flags, have[0].Extended
			}
			rest = append(rest, e)
		}
	}
	x.Entries = rest
	x.Sort()
	for i := 1; i < len(rest); i++ { // a staged file where a directory is now
		if strings.HasPrefix(rest[i].Name, rest[i-1].Name+"/") {
			staged = append(staged, rest[i-1].Name)
		}
	}
	return staged
}

// holds reports whether have, the entries of one path in a git index, say exactly that the path has the file
// e: no entry if e is empty, else one unconflicted entry with the mode and id of e.
func holds(have []gitrepo.IndexEntry, e gitrepo.TreeEntry) bool {
	if len(have) == 0 || e.Mode == 0 {
		return len(have) == 0 && e.Mode == 0
	}
	return len(have) == 1 && have[0].Stage() == 0 && have[0].Mode == e.Mode && have[0].ID == e.ID && have[0].Extended&gitrepo.IntentToAdd == 0
}

// IndexDigest returns a digest of the files that a git index lists, by which two indexes can be compared. It
// leaves out the cached times and inode numbers. "" means that data is no index.
func IndexDigest(data []byte) string {
	x, err := gitrepo.ParseIndex(data)
	if err != nil {
		return ""
	}
	for i := range x.Entries {
		x.Entries[i].Stat = [40]byte{}
	}
	sum := sha256.Sum256(x.Bytes())
	return hex.EncodeToString(sum[:])
}
