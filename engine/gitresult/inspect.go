package gitresult

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/gitrepo"
)

// A Repository is a git repository that the sandbox wrote to, open both in the real tree, which receives the
// commits, and in the sandbox's. [Inspect] makes it.
type Repository struct {
	trees Trees
	// dir is relative to the trees.
	dir        string
	real, mine *gitrepo.Repo
	realRefs   map[string]gitrepo.ID
	worktrees  []worktree
	// Moved are the refs that the sandbox moved or created, the current branch first.
	Moved []Moved
}

// A worktree is a directory of the real repository with the checked-out files of a branch: the main one or a
// linked one, made by git worktree.
type worktree struct {
	// dir holds its HEAD and index, relative to the trees.
	dir string
	// path is the absolute directory.
	path string
	// branch is the full name of its branch in the real repository; "" for a detached
	// HEAD.
	branch string
	head   gitrepo.ID
}

// Moved is a git ref that the sandbox moved or created, with its commit in the real repository and in the
// sandbox's.
type Moved struct {
	// Name is the full name, or "HEAD" for a detached HEAD.
	Name string
	// Real is the commit in the receiving repository; zero for none. Mine is the
	// sandbox's.
	Real, Mine gitrepo.ID
	gitrepo.Relation
	// worktree has the ref checked out in the receiving repository; nil for none.
	worktree *worktree
}

// Branch returns the short name of the git ref that the sandbox moved, for messages: main for
// refs/heads/main.
func (m *Moved) Branch() string {
	return strings.TrimPrefix(strings.TrimPrefix(m.Name, "refs/heads/"), "refs/")
}

// Inspect opens the git repository at dir in the base, the real and the sandbox's tree of t, and lists the
// refs that the sandbox moved. [Split] finds dir. The caller closes the result. Cost: reads all refs of the
// three trees, and the new commits. Errors: ErrCorrupt, naming the repository, for objects that are damaged
// or missing; ErrNotSupported for repository formats that snapfs does not read.
func Inspect(t Trees, dir string) (*Repository, error) {
	r := &Repository{trees: t, dir: dir}
	err := r.open()
	if err == nil {
		err = r.findMoved()
	}
	if err != nil {
		r.Close()
		return nil, r.fail(err)
	}
	return r, nil
}

// Close closes the git repository in both versions, the real one and the sandbox's.
func (r *Repository) Close() {
	r.real.Close()
	r.mine.Close()
}

// Path returns the absolute path of the git repository in the real tree, which receives the sandbox's
// commits.
func (r *Repository) Path() string { return filepath.Join(r.trees.Path, r.dir) }

// fail returns err as an [errs.Error] with the path of the git repository and the kind that its cause maps
// to. An errs.Error is returned unchanged.
func (r *Repository) fail(err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	kind := errs.KindOf(err)
	switch {
	case errors.Is(err, gitrepo.ErrDamaged), errors.Is(err, gitrepo.ErrTooLarge), errors.Is(err, fs.ErrNotExist):
		kind = errs.ErrCorrupt
	case errors.Is(err, gitrepo.ErrFormat):
		kind = errs.ErrNotSupported
	}
	return &errs.Error{Op: "reading the sandbox's repository", Path: pathlist.Printable(r.Path()), Kind: kind, Err: err}
}

func (r *Repository) open() (err error) {
	if r.real, err = gitrepo.Open(gitrepo.Dir{Root: r.trees.Real, Path: r.dir}, gitrepo.Options{Trusted: r.Path()}); err != nil {
		return err
	}
	if r.mine, err = gitrepo.Open(gitrepo.Dir{Root: r.trees.Mine, Path: r.dir}, gitrepo.Options{}); err != nil {
		return err
	}
	if r.realRefs, err = r.real.Refs(); err != nil {
		return err
	}
	return r.findWorktrees()
}

// findWorktrees lists the main and the linked worktrees of the real repository in r.worktrees.
func (r *Repository) findWorktrees() error {
	main := ""
	switch at := r.Path(); {
	case r.real.Worktree != "":
		main = resolve(at, r.real.Worktree)
	case filepath.Base(at) == ".git" && !r.real.Bare:
		main = filepath.Dir(at)
	}
	if main != "" {
		r.addWorktree(r.dir, main)
	}
	linked, err := r.real.List("worktrees")
	for _, e := range linked {
		in := gitrepo.Dir{Root: r.trees.Real, Path: path.Join(r.dir, "worktrees", e.Name)}
		if at, err := in.Read("gitdir", 1<<16); err == nil {
			r.addWorktree(in.Path, filepath.Dir(resolve(filepath.Join(r.trees.Path, in.Path), string(at))))
		}
	}
	return err
}

// addWorktree adds to r the worktree at the absolute path at, whose HEAD and index are in dir. It leaves out
// one whose HEAD cannot be read: then nothing is promoted to it.
func (r *Repository) addWorktree(dir, at string) {
	branch, head, err := r.real.Head(gitrepo.Dir{Root: r.trees.Real, Path: dir})
	if err != nil {
		return
	}
	if real, err := filepath.EvalSymlinks(at); err == nil {
		at = real
	}
	r.worktrees = append(r.worktrees, worktree{dir, at, branch, head})
}

// findMoved fills in r.Moved: the refs whose value in the sandbox is neither that of the base nor that of the
// real repository, and moved detached HEADs. Refs that a worktree has checked out come first.
func (r *Repository) findMoved() error {
	mine, err := r.mine.Refs()
	if err != nil {
		return err
	}
	base, err := r.baseRefs()
	if err != nil {
		return err
	}
	for i := range r.worktrees {
		if err := r.addDetached(&r.worktrees[i], mine); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		if mine[name] == base[name] || mine[name] == r.realRefs[name] || !brings(name) {
			continue
		}
		if err := r.addMoved(name, r.realRefs[name], mine[name], r.checkedOut(name)); err != nil {
			return err
		}
	}
	slices.SortStableFunc(r.Moved, func(a, b Moved) int {
		if (a.worktree != nil) != (b.worktree != nil) {
			if a.worktree != nil {
				return -1
			}
			return 1
		}
		return 0
	})
	return nil
}

// brings reports whether a promotion brings a ref of this name to the real repository: a branch, a tag or the
// stash, but no remote-tracking ref.
func brings(name string) bool {
	return strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") || name == "refs/stash"
}

func (r *Repository) baseRefs() (map[string]gitrepo.ID, error) {
	if r.trees.Base == r.trees.Real {
		return r.realRefs, nil
	}
	base := gitrepo.Repo{Dir: gitrepo.Dir{Root: r.trees.Base, Path: r.dir}}
	return base.Refs()
}

// checkedOut returns the worktree of the real repository that has the branch with this full name checked out,
// or nil.
func (r *Repository) checkedOut(branch string) *worktree {
	for i := range r.worktrees {
		if r.worktrees[i].branch == branch {
			return &r.worktrees[i]
		}
	}
	return nil
}

// addDetached adds the sandbox's detached HEAD in the worktree w to r.Moved, unless one of refs, the
// sandbox's refs, has the same commit.
func (r *Repository) addDetached(w *worktree, refs map[string]gitrepo.ID) error {
	branch, id, err := r.mine.Head(gitrepo.Dir{Root: r.trees.Mine, Path: w.dir})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the sandbox removed the worktree
	}
	if err != nil || branch != "" || id == w.head {
		return err
	}
	if w.branch == "" {
		return r.addMoved("HEAD", w.head, id, w)
	}
	for _, at := range refs {
		if at == id {
			return nil
		}
	}
	if known, err := r.real.Has(id); known || err != nil {
		return err
	}
	return r.addMoved("HEAD", r.realRefs[w.branch], id, nil)
}

func (r *Repository) addMoved(name string, real, mine gitrepo.ID, w *worktree) error {
	m := Moved{Name: name, Real: real, Mine: mine, worktree: w}
	if strings.HasPrefix(name, "refs/tags/") {
		r.Moved = append(r.Moved, m)
		return nil
	}
	from := real
	if from.Zero() { // a new branch: what the current one does not have
		from = r.currentCommit()
	}
	var err error
	if m.Relation, err = gitrepo.Relate(gitrepo.FromBoth(r.real, r.mine), from, mine); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if real.Zero() || len(m.New) > 0 || len(m.Bases) != 1 || m.Bases[0] != mine {
		r.Moved = append(r.Moved, m)
	}
	return nil
}

// currentCommit returns the commit that the main worktree of the real repository has checked out, zero for
// none.
func (r *Repository) currentCommit() gitrepo.ID {
	switch {
	case len(r.worktrees) == 0:
		return gitrepo.ID{}
	case r.worktrees[0].branch == "":
		return r.worktrees[0].head
	}
	return r.realRefs[r.worktrees[0].branch]
}
