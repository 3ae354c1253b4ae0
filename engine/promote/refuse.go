package promote

import (
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
)

// wanted are the nodes to be made or altered, those beneath a new directory
// included, with what of each is carried.
func (p *planner) wanted(f func(path string, n *diff.Node, what diff.Aspect)) {
	const all = ^diff.Aspect(0)
	for _, o := range p.ops {
		switch {
		case o.verb == alter:
			f(o.path, o.change.New, o.change.What)
		case o.verb != drop:
			f(o.path, o.change.New, all)
		}
		for i := range o.below {
			f(o.below[i].Path, o.below[i].New, all)
		}
	}
}

// refuseRights refuses owners that this process cannot give.
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
	var r Refused
	p.wanted(func(path string, n *diff.Node, what diff.Aspect) {
		if what&(diff.Owner|diff.Type|diff.Content) != 0 && (n.UID != uid || !slices.Contains(groups, int(n.GID))) {
			r.add(path, "only root can give it its owner")
		}
		if n.Mode&os.ModeDevice != 0 {
			r.add(path, "only root can make a device")
		}
	})
	for _, o := range p.ops {
		if o.verb == alter && o.seen.UID != uid && o.change.What&^diff.Links != 0 {
			r.add(o.path, "it belongs to another user")
		}
	}
	return r.err(p.t.Path, errs.ErrDenied)
}
