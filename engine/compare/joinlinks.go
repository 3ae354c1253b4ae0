package compare

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// joinLinks adds to the changes of the workspace's part the unlisted names of files to which the sandbox gave a new
// name (hard link), as changes of [diff.Links] alone unless they differ, too. A comparison does not see such a name if the link count stayed
// the same: after `mv b c` of one of the two names a and b, a still has two. A promotion needs a to make c a link of
// it.
//
// candidates are the paths that the backend listed in the part's tree. Cost: nothing if the changes have all names of
// each new hard link. Otherwise joinLinks reads the directories of changed names and of candidates. It walks the whole
// part only if the sandbox also removed or replaced a hard link of which other names are unchanged. It also looks for
// unlisted names of files with new content, within the bounds of a [linkSearch]. Errors: those of diff.At.
func (p *Part) joinLinks(ctx context.Context, candidates []snapshot.Candidate) error {
	s := newLinkSearch(ctx, p.New)
	total, lost := map[linkID]uint32{}, map[linkID]uint32{}
	added := map[linkID]bool{}
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Old.Shared() {
			id := linkID{c.Old.Dev, c.Old.Ino}
			if lost[id]++; lost[id] == c.Old.NLink {
				delete(lost, id)
			}
		}
		if c.New.Shared() {
			id := linkID{c.New.Dev, c.New.Ino}
			s.changed[c.Path] = true
			s.names[id]++
			total[id] = c.New.NLink
			if c.Kind == diff.Added || c.What&diff.Content != 0 {
				added[id] = true
				s.unbounded = s.unbounded || c.Kind == diff.Added
				s.dirs = append(s.dirs, path.Dir(c.Path))
			}
		}
	}
	for id := range added {
		if n := int(total[id]) - int(s.names[id]); n > 0 {
			s.want(id.ino, n)
		}
	}
	if s.open == 0 {
		return nil
	}
	for _, c := range candidates {
		if abs := filepath.Join(p.Tree, c.Path); abs != p.Root && hostfs.Within(abs, p.Root) {
			s.dirs = append(s.dirs, path.Dir(hostfs.Relative(abs, p.Root)))
		}
	}
	slices.Sort(s.dirs)
	s.dirs = slices.Compact(s.dirs)
	s.shallow = len(lost) == 0
	if _, err := s.run(); err != nil {
		return errs.With("comparing", p.Root, err)
	}
	return p.addNames(ctx, s.others)
}

// addNames adds the names of others to the changes of a part, each as the change that a comparison finds, or else of its
// hard links alone, and sets the field LinkOf of all changes anew. It leaves out a name that the old state lacks.
func (p *Part) addNames(ctx context.Context, others map[linkID][]string) error {
	var touched []snapshot.Candidate
	for _, names := range others {
		for _, name := range names {
			touched = append(touched, snapshot.Candidate{Path: name})
		}
	}
	found, err := diff.At(ctx, p.Old, p.New, touched, p.Opt)
	if err != nil {
		return err
	}
	changed := map[string]diff.Change{}
	for _, c := range found {
		changed[c.Path] = c
	}
	old, present := baseline.RootedReader{Root: p.Old}, baseline.RootedReader{Root: p.New}
	defer old.Close()
	defer present.Close()
	for _, names := range others {
		for _, name := range names {
			was, err := old.Node(name)
			if err != nil {
				return errs.Wrap("reading", filepath.Join(p.Root, name), err)
			}
			now, err := present.Node(name)
			if err != nil {
				return errs.Wrap("reading", filepath.Join(p.Root, name), err)
			}
			if c, differs := changed[name]; differs {
				p.Changes = append(p.Changes, c)
			} else if was != nil && now != nil {
				p.Changes = append(p.Changes, diff.Change{Path: name, Kind: diff.Modified, What: diff.Links, Old: was, New: now})
			}
		}
	}
	baseline.SortChanges(p.Changes)
	var first [2]map[linkID]string
	for i := range p.Changes {
		for side, n := range [2]*diff.Node{p.Changes[i].Old, p.Changes[i].New} {
			if !n.Shared() {
				continue
			}
			if first[side] == nil {
				first[side] = map[linkID]string{}
			}
			id := linkID{n.Dev, n.Ino}
			n.LinkOf = first[side][id]
			if n.LinkOf == "" {
				first[side][id] = p.Changes[i].Path
			}
		}
	}
	return nil
}

// A look is what a file that was only renamed has in common with its former self.
type look struct {
	mode     fs.FileMode
	size     int64
	mtime    time.Time
	uid, gid uint32
}

// lookOf returns the look of the regular file n; the zero look for any other node and for nil.
func lookOf(n *diff.Node) look {
	if n == nil || !n.Mode.IsRegular() {
		return look{}
	}
	return look{n.Mode, n.Size, n.MTime.UTC(), n.UID, n.GID}
}

// addedAlone returns, by their look, the added regular files that have no other names (hard links). An overlay makes
// such a file of a hard link that the sandbox renames.
func addedAlone(changes []diff.Change) map[look]string {
	added := map[look]string{}
	for i := range changes {
		if n := changes[i].New; changes[i].Kind == diff.Added && n.NLink == 1 && n.Mode.IsRegular() {
			added[lookOf(n)] = changes[i].Path
		}
	}
	return added
}
