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

// joinLinks adds missing names (hard links) to the changes of the workspace's part. If the sandbox gave a file a new
// name, the changes must have all other names of the file, too, so that a promotion can make the new name a hard link.
// A comparison misses a name whose link count stayed the same: after `mv b c` of the two names a and b, the file of a
// still has two. An added name is a change of [diff.Links] alone unless more of it differs.
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

// addNames adds each name in others to the changes of a part: with the change that a comparison finds there, or else
// with [diff.Links] alone. It leaves out a name that the old state lacks.
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
	setLinkOf(p.Changes)
	return nil
}

// setLinkOf sets the field LinkOf of the nodes of changes, which are sorted by path: the first path of a file with
// several names has "", and each later one has the first.
func setLinkOf(changes []diff.Change) {
	var first [2]map[linkID]string
	for i := range changes {
		for side, n := range [2]*diff.Node{changes[i].Old, changes[i].New} {
			if !n.Shared() {
				continue
			}
			if first[side] == nil {
				first[side] = map[linkID]string{}
			}
			id := linkID{n.Dev, n.Ino}
			n.LinkOf = first[side][id]
			if n.LinkOf == "" {
				first[side][id] = changes[i].Path
			}
		}
	}
}

// A renameKey has the attributes of a regular file that a rename keeps. Two nodes with the same renameKey may be one
// file before and after a rename, even if a copy up gave the file another inode.
type renameKey struct {
	mode     fs.FileMode
	size     int64
	mtime    time.Time
	uid, gid uint32
}

// renameKeyOf returns the renameKey of the regular file n, and the zero value for any other node and for nil.
func renameKeyOf(n *diff.Node) renameKey {
	if n == nil || !n.Mode.IsRegular() {
		return renameKey{}
	}
	return renameKey{n.Mode, n.Size, n.MTime.UTC(), n.UID, n.GID}
}

// addedAlone returns the paths of the added regular files with one name, by their renameKey. When a sandbox renames one
// of several hard links, an overlay copies the file up, so that the new name is such a file.
func addedAlone(changes []diff.Change) map[renameKey]string {
	added := map[renameKey]string{}
	for i := range changes {
		if n := changes[i].New; changes[i].Kind == diff.Added && n.NLink == 1 && n.Mode.IsRegular() {
			added[renameKeyOf(n)] = changes[i].Path
		}
	}
	return added
}
