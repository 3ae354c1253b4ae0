package promote

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// eachNew calls f for each node that the promotion creates or alters, including those below new directories.
// f's argument what lists the aspects, such as owner or mode, that the promotion sets.
func (p *planner) eachNew(f func(path string, n *diff.Node, what diff.Aspect)) {
	const all = ^diff.Aspect(0)
	for _, o := range p.ops {
		switch {
		case o.verb == alter:
			f(o.path, o.change.New, o.change.What)
		case o.verb != drop:
			f(o.path, o.change.New, all)
		}
		for i := range o.additions {
			f(o.additions[i].Path, o.additions[i].New, all)
		}
	}
}

// refuseRights returns an error if the promotion creates files with an owner, or devices, that this process
// has no right to make.
func (p *planner) refuseRights() error {
	uid := uint32(os.Geteuid())
	if uid == 0 {
		return nil
	}
	groups, err := os.Getgroups()
	if err != nil {
		return at(p.t.Path, err)
	}
	groups = append(groups, os.Getegid())
	var r pathlist.List
	p.eachNew(func(path string, n *diff.Node, what diff.Aspect) {
		if what&(diff.Owner|diff.Type|diff.Content) != 0 && (n.UID != uid || !slices.Contains(groups, int(n.GID))) {
			r.Add(path, "only root can set its owner")
		}
		if n.Mode&os.ModeDevice != 0 {
			r.Add(path, "only root can make a device")
		}
	})
	for _, o := range p.ops {
		if o.verb == alter && o.found.UID != uid && o.change.What&^diff.Links != 0 {
			r.Add(o.path, "it belongs to another user")
		}
	}
	return refused(&r, p.t.Path, errs.ErrDenied)
}

// refuseUnapproved returns an error for changes that need the user's approval and have none. Some rules
// depend on the absolute path, so each change is tested at two: below the target's path as the caller gave
// it, and below the same path without symbolic links.
func (p *planner) refuseUnapproved(allow approval.Allow) error {
	if err := allow.Validate(); err != nil {
		return err
	}
	names := []string{p.t.Path}
	if real, err := vfs.PathOf(p.t.Root); err == nil && real != p.t.Path && filepath.IsAbs(real) {
		names = append(names, real)
	}
	check := allow.Checker(p.from.At, names...).Before(p.t.Root, p.base.Root)
	check.Add(p.steps)
	p.eachNew(func(path string, n *diff.Node, what diff.Aspect) {
		// A file built anew gains its attributes, even if the change is a smaller one.
		check.AddKind(&diff.Change{Path: path, Kind: diff.Modified, What: what, New: n})
	})
	if needed := check.Needed(); needed != nil {
		return refused(&needed.List, p.t.Path, errs.ErrDenied)
	}
	return nil
}
