package gitresult

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/internal/gitrepo"
)

// A Tip is a new value that a promotion gave to a ref of the real repository: the commit or tag To, where the
// ref had From before, or "" for a new ref.
type Tip struct {
	From string `json:"from,omitempty"`
	To   string `json:"to"`
}

// Tips lists the old and new values of those refs of the real git repository that the plan changes. The
// promotion stores them, so that a redo can check that the commits still exist.
func (p *Result) Tips() (all []Tip) {
	for _, r := range p.Report.Refs {
		all = append(all, Tip{r.From, r.Result})
	}
	return all
}

// Complete checks that the real repository at this path still has all objects that a promotion brought: those
// of tips beyond their earlier values. Git removes objects that no ref names, in time, so a redo of an undone
// promotion calls this first. Cost: reads the new commits and their trees. Errors: ErrCorrupt.
func Complete(repository string, tips []Tip) error {
	root, err := os.Open(repository)
	if err != nil {
		return err
	}
	defer root.Close()
	r := &Repository{trees: Trees{Path: repository}, dir: "."}
	if r.real, err = gitrepo.Open(gitrepo.Dir{Root: root, Path: "."}, gitrepo.Options{Trusted: repository}); err != nil {
		return r.fail(err)
	}
	defer r.real.Close()
	seen := map[gitrepo.ID]bool{}
	for _, tip := range tips {
		if err := r.complete(tip, seen); err != nil {
			return r.fail(fmt.Errorf("a promoted commit is no longer whole: %w", err))
		}
	}
	return nil
}

// complete reads all git objects that a promotion brought with tip, the new value of a ref, and returns an
// error if one is missing. seen holds the objects read before, for other tips.
func (r *Repository) complete(tip Tip, seen map[gitrepo.ID]bool) error {
	to, ok := gitrepo.ParseID(tip.To)
	if !ok {
		return nil // the ref was deleted
	}
	o, err := r.real.Object(to, 0)
	if err != nil {
		return err
	}
	todo := []wanted{{id: to, kind: o.Kind}}
	if o.Kind == gitrepo.Commit {
		from, err := r.before(tip)
		if err != nil {
			return err
		}
		relation, err := gitrepo.Relate(r.real.Commit, from, to)
		if err != nil {
			return err
		}
		todo = nil
		for _, c := range relation.New {
			todo = append(todo, wanted{id: c.Tree, kind: gitrepo.Tree})
		}
	}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[w.id] {
			continue
		}
		seen[w.id] = true
		if w.kind == gitrepo.Blob {
			if has, err := r.real.Has(w.id); err != nil || !has {
				return fmt.Errorf("object %s: %w", w.id, cmp.Or(err, fs.ErrNotExist))
			}
			continue
		}
		o, err := r.real.Object(w.id, w.kind)
		if err != nil {
			return err
		}
		if todo, err = appendReferred(todo, o); err != nil {
			return err
		}
	}
	return nil
}

// before returns the commit from which a promotion moved the ref of tip. For a new ref it returns the commit
// of the real repository's current branch; zero for none.
func (r *Repository) before(tip Tip) (gitrepo.ID, error) {
	if from, ok := gitrepo.ParseID(tip.From); ok {
		if o, err := r.real.Object(from, 0); err == nil && o.Kind == gitrepo.Commit {
			return from, nil
		}
	}
	branch, id, err := r.real.Head(r.real.Dir)
	if err != nil || branch == "" {
		return id, err
	}
	refs, err := r.real.Refs()
	return refs[branch], err
}
