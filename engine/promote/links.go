package promote

import (
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Hard links. The names of one file in the sandbox form a class, identified by the first of them in the changes. If
// one of them stays in place on the target because its content is unchanged, it is the anchor, and the others become
// links of it. Otherwise the first is copied and the others link to the copy.

// class identifies the file to which a change's new node belongs, if that has several names (hard links): it
// returns the first changed path among them, "" for a node with one name.
func class(c *diff.Change) string {
	switch {
	case !c.New.Shared():
		return ""
	case c.New.LinkOf != "":
		return c.New.LinkOf
	}
	return c.Path
}

// planLinks decides for each changed name of a file with several names (hard links) whether the real inode stays,
// the name becomes a hard link of a real file that stays (the anchor), or it gets a file of its own. It is needed
// only for a plan with such files.
func (p *planner) planLinks() error {
	p.anchors = map[string]string{}
	anchor := map[string]uint64{} // inode of a class's anchor
	owner := map[uint64]string{}  // class of an anchor's inode
	for _, o := range slices.Concat(p.kept, p.ops) {
		if o.verb != alter && o.verb != "" || o.found.IsDir() || o.found.NLink == 1 && !o.change.New.Shared() {
			continue
		}
		k := class(&o.change)
		if k == "" {
			k = o.path
		}
		ino, anchored := anchor[k]
		of, taken := owner[o.found.Ino]
		switch {
		case !anchored && !taken:
			anchor[k], owner[o.found.Ino] = o.found.Ino, k
			p.anchors[k] = o.path
		case o.verb == "", taken && of == k && ino == o.found.Ino:
		default:
			o.verb = swap // it needs its own file
			if err := p.prepareDir(o); err != nil {
				return err
			}
		}
	}
	for _, o := range p.ops {
		if k := class(&o.change); k != "" && (o.verb == put || o.verb == swap) {
			o.source = p.anchors[k]
		}
	}
	return nil
}

// refuseLinks returns an error for changes that would separate a file from one of its hard links that is not
// among the changes.
func (p *planner) refuseLinks() error {
	names := map[uint64]uint32{}
	for _, o := range p.ops {
		if o.found.Shared() {
			names[o.found.Ino]++
		}
		for _, i := range o.oldTree {
			names[i.Ino]++
		}
	}
	var r pathlist.List
	for _, o := range p.ops {
		if !o.found.Shared() || names[o.found.Ino] >= o.found.NLink {
			continue
		}
		if o.verb == swap || o.verb == alter && o.change.What&^diff.Links != 0 {
			r.Add(o.path, "another hard link of it is not among the changes and would keep the old content")
		}
	}
	return refused(&r, p.t.Path, errs.ErrConflict, "apply all names of the file together, or copy it by hand")
}
