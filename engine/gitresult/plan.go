package gitresult

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/gitrepo"
)

// Options select how [Plan] brings the sandbox's commits into the real repository; the flags of `snapfs
// promote` set them.
type Options struct {
	// Sandbox is the sandbox's name, Workspace its absolute workspace.
	Sandbox, Workspace string
	// Merge joins a branch that has moved in both repositories with a merge commit, and Rebase
	// copies the sandbox's commits onto the real branch. Without both, the commits are stored
	// under refs/snapfs.
	Merge, Rebase bool
	// Squash makes one commit, with Message, of the current branch's commits.
	Squash  bool
	Message string
	// FetchOnly stores all commits and moves no branch. AsBranch also moves none, but makes a
	// branch of this name of the current branch's commits.
	FetchOnly bool
	AsBranch  string
	// Allow approves paths in commits that need approval.
	Allow approval.Allow
	// Find, if it is not nil, describes what in the content of a new object must not come into the real repository, or
	// returns "". [Result.WriteObjects] refuses such an object.
	Find func(content []byte) string
	// Now is the time of new files.
	Now time.Time
}

// FilesStay reports whether the promotion brings only the sandbox's commits and leaves the real files of the
// workspace as they are.
func (o *Options) FilesStay() bool { return o.FetchOnly || o.AsBranch != "" }

// A Conflict is a file of the real git repository that the promotion cannot change, with the reason.
type Conflict struct {
	// Path is relative to the trees.
	Path, Why string
}

// A Result is the plan that [Plan] makes for one git repository: the changes that bring the sandbox's commits
// into it, and the conflicts that prevent them.
type Result struct {
	// Changes are the changes of the repository's files, in the order of package diff,
	// with paths relative to the trees. Files has the content of each new file, and Seen
	// the real node at each path.
	Changes []diff.Change
	Files   map[string][]byte
	Seen    map[string]*diff.Node
	// Conflicts stop a promotion.
	Conflicts []Conflict
	// Needed are paths of commits that need approval, relative to Worktree. The commits
	// are stored instead.
	Needed   *approval.Needed
	Worktree string
	Report   Report

	repo    *Repository
	objects objects
	tips    []gitrepo.ID
	o       Options
	uid     uint32
	gid     uint32
}

// Plan decides how each ref that the sandbox moved gets into the real repository: the current branch moves
// forward, and all other commits are stored under refs/snapfs/SANDBOX. It changes nothing. Errors: those of
// Inspect; ErrBusy while another program has locked the repository; ErrConflict for commits that cannot be
// merged.
func Plan(r *Repository, o Options) (*Result, error) {
	p := &Result{
		repo: r, o: o, Files: map[string][]byte{}, Seen: map[string]*diff.Node{}, Report: Report{Repository: r.Path(), Refs: []RefReport{}},
		objects: objects{real: r.real, mine: r.mine, made: map[gitrepo.ID]gitrepo.Object{}},
	}
	if err := p.readOwner(); err != nil {
		return nil, r.fail(err)
	}
	for i := range r.Moved {
		if err := p.planRef(&r.Moved[i]); err != nil {
			return nil, r.fail(err)
		}
	}
	slices.SortFunc(p.Changes, func(a, b diff.Change) int { return diff.ComparePaths(a.Path, b.Path) })
	return p, nil
}

// A How says in which way a promotion brought a git ref of the sandbox into the real repository, such as by a
// merge.
type How string

// The ways in which a promotion brings a git ref of the sandbox into the real repository. Stored means under
// refs/snapfs, with no branch moved.
const (
	FastForward How = "fast-forward"
	Merged      How = "merge"
	Rebased     How = "rebase"
	Squashed    How = "squash"
	Branched    How = "branch"
	Stored      How = "stored"
)

func (p *Result) planRef(m *Moved) error {
	current := m.worktree != nil
	if p.o.AsBranch != "" && current && m == &p.repo.Moved[0] {
		return p.asBranch(m)
	}
	why := ""
	switch {
	case p.o.FilesStay():
	case !current:
		why = "it is not the current branch"
	default:
		moved, reason, err := p.moveCurrent(m)
		if err != nil || moved {
			return err
		}
		why = reason
	}
	return p.store(m, why)
}

// asBranch plans that the real repository gets the branch o.AsBranch, which the user named, at the commit
// that the sandbox has in m. ErrExists: the branch is checked out or has other commits.
func (p *Result) asBranch(m *Moved) error {
	name := "refs/heads/" + p.o.AsBranch
	if !gitrepo.ValidRef(name) {
		return &errs.Error{Op: "promoting", Path: p.o.AsBranch, Kind: errs.ErrInvalid, Err: errors.New("not a valid branch name")}
	}
	before := p.repo.realRefs[name]
	if !before.Zero() {
		rel, err := gitrepo.Relate(gitrepo.FromBoth(p.repo.real, p.repo.mine), before, m.Mine)
		if err != nil {
			return err
		}
		if p.repo.checkedOut(name) != nil || len(rel.Bases) != 1 || rel.Bases[0] != before {
			return &errs.Error{Op: "promoting", Path: p.o.AsBranch, Kind: errs.ErrExists, Err: errors.New("the branch exists with other commits")}
		}
	}
	p.tips = append(p.tips, m.Mine)
	p.Report.add(m, Branched, name, m.Mine, "")
	return p.setRef(p.repo.dir, name, m.Mine)
}

// store plans that the real repository gets the ref refs/snapfs/SANDBOX/BRANCH at the commit that the sandbox
// has in m, because the branch itself cannot be moved. why is the reason, for the report.
func (p *Result) store(m *Moved, why string) error {
	name := "refs/snapfs/" + p.o.Sandbox + "/" + m.Branch()
	aside, err := p.setAside(name, m.Mine)
	if err != nil {
		return err
	}
	if aside != "" && why != "" {
		why += "; "
	}
	if aside != "" {
		why += "the commits that were stored there are now " + strings.TrimPrefix(aside, "refs/")
	}
	p.tips = append(p.tips, m.Mine)
	p.Report.add(m, Stored, name, m.Mine, why)
	return p.setRef(p.repo.dir, name, m.Mine)
}

// setAside plans a second ref for the commit at which the stored ref name is now, unless the new commit to contains
// that commit, and returns the second ref's name, or "". A removed sandbox of the same name may have stored the
// commit, and no other ref of the repository may lead to it.
func (p *Result) setAside(name string, to gitrepo.ID) (string, error) {
	before := p.repo.realRefs[name]
	if before.Zero() || before == to {
		return "", nil
	}
	if has, err := p.repo.real.Has(before); err != nil || !has {
		return "", err
	}
	rel, err := gitrepo.Relate(gitrepo.FromBoth(p.repo.real, p.repo.mine), before, to)
	if err == nil && len(rel.Bases) == 1 && rel.Bases[0] == before { // an error: before is a tag and no commit
		return "", nil
	}
	aside := name + "-" + before.Short()
	return aside, p.setRef(p.repo.dir, aside, before)
}

// moveCurrent plans to move the branch that is checked out in the real worktree of m to the sandbox's commit,
// together with the git index. If it cannot, it returns false and the reason why, and has planned nothing.
func (p *Result) moveCurrent(m *Moved) (moved bool, why string, err error) {
	to, how, why, err := p.target(m)
	if err != nil || why != "" {
		return false, why, err
	}
	oldTree, err := p.treeOf(m.Real)
	if err != nil {
		return false, "", err
	}
	newTree, err := p.treeOf(to)
	if err != nil {
		return false, "", err
	}
	changed, err := p.objects.differences(oldTree, newTree, "")
	if err != nil {
		return false, "", err
	}
	if !pathlist.Within(m.worktree.path, p.o.Workspace) {
		for _, c := range changed {
			if !pathlist.Within(path.Join(m.worktree.path, c.path), p.o.Workspace) {
				return false, "its commits change files outside the workspace", nil
			}
		}
	}
	changes, err := p.objects.asChanges(changed)
	if err != nil {
		return false, "", err
	}
	if needed := p.o.Allow.Check(m.worktree.path, changes, nil); needed != nil {
		p.Needed, p.Worktree = needed, m.worktree.path
		return false, "its commits change files that need approval", nil
	}
	if err := p.moveIndex(m.worktree, changed, !m.Real.Zero()); err != nil {
		return false, "", err
	}
	p.tips = append(p.tips, to)
	p.Report.add(m, how, m.Name, to, "")
	dir := p.repo.dir
	if m.Name == "HEAD" {
		dir = m.worktree.dir
	}
	return true, "", p.setRef(dir, m.Name, to)
}

func (p *Result) treeOf(commit gitrepo.ID) (gitrepo.ID, error) {
	if commit.Zero() {
		return commit, nil
	}
	c, err := p.objects.commit(commit)
	if err != nil {
		return gitrepo.ID{}, err
	}
	return c.Tree, nil
}

// target returns the commit to which a promotion moves the current branch of the real repository, and in
// which way; or in why the reason that the branch does not move. A merge or rebase makes a new commit, in
// p.objects.
func (p *Result) target(m *Moved) (to gitrepo.ID, how How, why string, err error) {
	forward := m.Real.Zero() || len(m.Bases) == 1 && m.Bases[0] == m.Real
	name := m.Branch()
	switch {
	case len(m.New) == 0:
		return to, "", name + " was moved back inside", nil
	case forward && !p.o.Squash:
		return m.Mine, FastForward, "", nil
	case forward:
		c, err := p.objects.commit(m.Mine)
		if err != nil {
			return to, "", "", err
		}
		to, err = p.commitLike(m.Mine, c.Tree, p.o.Message, parents(m.Real)...)
		return to, Squashed, "", err
	case len(m.Bases) == 0:
		return to, "", name + " has no common history with the real one", nil
	case p.o.Rebase:
		to, err = p.rebase(m)
		return to, Rebased, "", err
	case p.o.Merge || p.o.Squash:
		to, how, err = p.merge(m)
		return to, how, "", err
	}
	return to, "", name + " has moved", nil
}

func parents(id gitrepo.ID) []gitrepo.ID {
	if id.Zero() {
		return nil
	}
	return []gitrepo.ID{id}
}

// merge makes a commit that merges the sandbox's branch into the real one, in memory only (p.objects), and
// returns its id. With Squash the commit has only the real parent.
func (p *Result) merge(m *Moved) (gitrepo.ID, How, error) {
	var trees [3]gitrepo.ID
	for i, id := range []gitrepo.ID{m.Bases[0], m.Real, m.Mine} {
		var err error
		if trees[i], err = p.treeOf(id); err != nil {
			return id, "", err
		}
	}
	tree, err := p.mergeTrees(m, trees[0], trees[1], trees[2])
	if err != nil {
		return tree, "", err
	}
	if p.o.Squash {
		id, err := p.commitLike(m.Mine, tree, p.o.Message, m.Real)
		return id, Squashed, err
	}
	message := fmt.Sprintf("Merge %s of sandbox %s", m.Branch(), p.o.Sandbox)
	if p.o.Message != "" {
		message = p.o.Message
	}
	id, err := p.commitLike(m.Mine, tree, message, m.Real, m.Mine)
	return id, Merged, err
}

func (p *Result) mergeTrees(m *Moved, base, ours, theirs gitrepo.ID) (gitrepo.ID, error) {
	tree, conflicts, err := p.objects.mergeTrees(base, ours, theirs, "")
	if err == nil && len(conflicts) > 0 {
		shown := strings.Join(conflicts[:min(len(conflicts), 5)], ", ")
		return tree, &errs.Error{
			Op: "merging the commits of", Path: m.Branch(), Kind: errs.ErrConflict,
			Err:   fmt.Errorf("both sides changed %s", shown),
			Hints: []string{"snapfs promote " + p.o.Sandbox + " --as-branch BRANCH   # then git merge BRANCH"},
		}
	}
	return tree, err
}

// rebase copies the sandbox's new commits onto the real branch, oldest first, in memory only (p.objects), and
// returns the id of the last copy.
func (p *Result) rebase(m *Moved) (gitrepo.ID, error) {
	to := m.Real
	for _, c := range slices.Backward(m.New) {
		if len(c.Parents) > 1 {
			return to, &errs.Error{
				Op: "rebasing", Path: m.Branch(), Kind: errs.ErrConflict, Err: fmt.Errorf("%s is a merge", c.ID.Short()),
				Hints: []string{"snapfs promote " + p.o.Sandbox + " --merge"},
			}
		}
		before := gitrepo.ID{}
		if len(c.Parents) == 1 {
			var err error
			if before, err = p.treeOf(c.Parents[0]); err != nil {
				return to, err
			}
		}
		ours, err := p.treeOf(to)
		if err != nil {
			return to, err
		}
		tree, err := p.mergeTrees(m, before, ours, c.Tree)
		if err != nil {
			return to, err
		}
		if to, err = p.commitAs(c.ID, c.Author, c.Committer, tree, c.Message, to); err != nil {
			return to, err
		}
	}
	return to, nil
}

// commitLike makes a commit of tree in memory (p.objects), with this message and these parents, whose author and
// committer is the committer of the commit like. Its time is that of the newest commit it is made of, so that the
// same plan gives the same commit id.
func (p *Result) commitLike(like, tree gitrepo.ID, message string, parents ...gitrepo.ID) (gitrepo.ID, error) {
	c, err := p.objects.commit(like)
	if err != nil {
		return like, err
	}
	return p.commitAs(like, c.Committer, c.Committer, tree, message, parents...)
}

func (p *Result) commitAs(like gitrepo.ID, author, committer string, tree gitrepo.ID, message string, parents ...gitrepo.ID) (gitrepo.ID, error) {
	when := int64(0)
	for _, id := range append(slices.Clone(parents), like) {
		c, err := p.objects.commit(id)
		if err != nil {
			return id, err
		}
		when = max(when, c.When().Unix())
	}
	at := func(person string) string {
		end := strings.LastIndexByte(person, '>') + 1
		zone := person[strings.LastIndexByte(person, ' '):]
		return person[:end] + " " + strconv.FormatInt(when, 10) + zone
	}
	if author == committer {
		author = at(author)
	}
	c := gitrepo.CommitData{Tree: tree, Parents: parents, Author: author, Committer: at(committer), Message: strings.TrimRight(message, "\n") + "\n"}
	text := c.Text()
	_, err := gitrepo.ParseCommit(text, true)
	return p.objects.add(gitrepo.Commit, text), err
}
