package reconcile

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// conflictGit is the kind of a conflict about a ref or a file of a git repository.
const conflictGit = "git"

// gitParts removes the changes of git's own files from parts, because snapfs promotes commits, and returns the
// changed repositories of each. Outside the workspace only the workspace's own repository counts. With FilesStay only
// commits are promoted, so it drops all other changes.
func (rc *Reconciler) gitParts(c *Promotion, parts []compare.Part, o PlanOptions) (rest []compare.Part, repos [][]string, err error) {
	own := ""
	for _, p := range parts {
		var found []string
		var others []diff.Change
		if !p.Workspace {
			if own == "" {
				own = gitresult.RepoOf(c.Rec.Workspace)
			}
			if own == "" || !hostfs.Within(own, p.Root) {
				rest, repos = append(rest, p), append(repos, nil)
				continue
			}
			inside := func(ch diff.Change) bool { return hostfs.Within(filepath.Join(p.Root, ch.Path), own) }
			others = slices.DeleteFunc(slices.Clone(p.Changes), inside)
			p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(ch diff.Change) bool { return !inside(ch) })
		}
		if slices.ContainsFunc(p.Changes, func(ch diff.Change) bool { return strings.Contains(ch.Path+"/", ".git/") }) {
			real, err := baseline.OpenRoot(p.Root)
			if err != nil {
				return nil, nil, err
			}
			var problems []string
			p.Changes, found, problems = gitresult.Split(gitTrees(p, real), p.Changes)
			real.Close()
			for _, problem := range problems {
				rc.notice(problem)
			}
		}
		p.Changes = append(p.Changes, others...)
		baseline.SortChanges(p.Changes)
		if o.Git.FilesStay() {
			p.Changes = nil
		}
		rest, repos = append(rest, p), append(repos, found)
	}
	return rest, repos, nil
}

func gitTrees(p compare.Part, real *os.File) gitresult.Trees {
	t := gitresult.Trees{Path: p.Root, Base: real, Real: real, Mine: p.New}
	if p.Frozen {
		t.Base = p.Old
	}
	return t
}

// planGit adds to the changes p of one directory those that bring the commits of the sandbox's repositories, repos,
// into the real ones. It reports a notice for commits that have to stay in the sandbox.
func (rc *Reconciler) planGit(c *Promotion, p *promotionPart, repos []string, o PlanOptions) error {
	for _, dir := range repos {
		r, err := gitresult.Inspect(gitTrees(p.Part, p.real), dir)
		if err != nil {
			return err
		}
		p.repos = append(p.repos, r)
		if len(r.Moved) > 0 && (len(o.Only) > 0 || p.path != p.Part.Root) {
			rc.notice("the commits in " + r.Path() + " stay in the sandbox: they are promoted with the whole workspace only")
			continue
		}
		git := o.Git
		git.Sandbox, git.Workspace, git.Allow, git.Now = c.Rec.Name, c.Rec.Workspace, o.Allow, time.Now()
		if git.Find, err = leak.Finder(c.Rec, rc.cat.Path(c.Rec.Name)); err != nil {
			return err
		}
		plan, err := gitresult.Plan(r, git)
		if err != nil {
			return err
		}
		if err := p.addGit(c, plan); err != nil {
			return err
		}
	}
	return nil
}

// addGit adds the files that snapfs computed for a repository to the changes and the scratch directory of the part.
// The repository's conflicts, approvals and refs it adds to c.Plan.
func (p *promotionPart) addGit(c *Promotion, g *gitresult.Result) error {
	for name, data := range g.Files {
		at := filepath.Join(p.scratch, name)
		err := os.MkdirAll(filepath.Dir(at), 0o700)
		if err == nil {
			err = os.WriteFile(at, data, 0o600)
		}
		if err != nil {
			return scratchError(at, err)
		}
		p.res.Built[name] = true
		if err := p.openBuilt(); err != nil {
			return err
		}
	}
	maps.Copy(p.seen, g.Seen)
	p.git = append(p.git, g)
	p.Changes = append(p.Changes, g.Changes...)
	baseline.SortChanges(p.Changes)
	if p.gitFiles == nil {
		p.gitFiles = map[string]bool{}
	}
	p.allow.Paths = slices.Clip(p.allow.Paths) // the options share them
	for _, ch := range g.Changes {
		p.gitFiles[ch.Path] = true
		p.allow.Paths = append(p.allow.Paths, filepath.Join(p.path, pathlist.Escape(ch.Path)))
	}
	for _, k := range g.Conflicts {
		c.Plan.Conflicts = append(c.Plan.Conflicts, Conflict{Path: filepath.Join(p.path, k.Path), Kind: conflictGit, Why: k.Why})
	}
	if n := g.Needed; n != nil {
		for _, path := range n.Paths {
			abs := filepath.Join(g.Worktree, path)
			if !slices.ContainsFunc(c.Plan.NeedsApproval, func(a ApprovalPath) bool { return a.Path == abs }) {
				c.Plan.NeedsApproval = append(c.Plan.NeedsApproval, ApprovalPath{abs, n.Why[path]})
			}
		}
		for _, path := range n.Allow {
			if abs := filepath.Join(g.Worktree, path); !slices.Contains(c.Plan.Allow, abs) {
				c.Plan.Allow = append(c.Plan.Allow, abs)
			}
		}
	}
	if len(g.Report.Refs) > 0 {
		c.Plan.Git = append(c.Plan.Git, g.Report)
	}
	return nil
}

// writeObjects writes the sandbox's new git objects to the real repositories, before any ref names them.
func (rc *Reconciler) writeObjects(ctx context.Context, c *Promotion) error {
	for _, p := range c.Parts {
		for _, g := range p.git {
			if err := g.WriteObjects(ctx); err != nil {
				return leak.Announce(c.Rec, rc.events, err)
			}
		}
	}
	return nil
}

// checkGit returns an error if the options say how to promote commits and there are no such commits.
func (c *Promotion) checkGit(o gitresult.Options) error {
	asked := map[gitresult.How]bool{gitresult.Squashed: o.Squash, gitresult.Branched: o.AsBranch != "", gitresult.Stored: o.FetchOnly}
	any := false
	for how, is := range asked {
		any = any || is
		for _, r := range c.Plan.Git {
			for _, ref := range r.Refs {
				if is && ref.How == how {
					return nil
				}
			}
		}
	}
	if !any || len(c.Plan.Conflicts) > 0 || len(c.Plan.NeedsApproval) > 0 {
		return nil
	}
	op, hints := "promoting", []string{"snapfs diff " + c.Rec.Name, "snapfs promote " + c.Rec.Name}
	if o.FetchOnly {
		op, hints = "fetching", hints[:1]
	}
	return errs.New(op, c.Rec.Name, errs.ErrNotFound, "the sandbox has no new commits on the current branch", hints...)
}

// noteGit stores which git index files and refs the promotion writes, for an undo or redo.
func (c *promotedNote) noteGit(all []*promotionPart) {
	for _, p := range all {
		for _, g := range p.git {
			if tips := g.Tips(); len(tips) > 0 {
				if c.Tips == nil {
					c.Tips = map[string][]gitresult.Tip{}
				}
				c.Tips[g.Report.Repository] = tips
			}
			for name, data := range g.Files {
				if filepath.Base(name) == "index" {
					if c.Indexes == nil {
						c.Indexes = map[string]string{}
					}
					c.Indexes[filepath.Join(p.path, name)] = gitresult.IndexDigest(data)
				}
			}
		}
	}
}

// sameIndex returns a function that reports whether a path of target is a git index that still lists the promoted
// files. The bytes may differ, because git rewrites the index whenever it looks at files.
func (c *promotedNote) sameIndex(target string) func(path string) bool {
	if c == nil || len(c.Indexes) == 0 {
		return nil
	}
	return func(path string) bool {
		abs := filepath.Join(target, path)
		want, ok := c.Indexes[abs]
		if !ok {
			return false
		}
		data, err := os.ReadFile(abs)
		return err == nil && gitresult.IndexDigest(data) == want
	}
}
