package promote

import (
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Hard links. The names that are one file in the sandbox form a class, named by
// the first of them in the changes. Where one of them stays in place on the real
// tree, because its content is as it was, it is the anchor, and the others
// become links of it; otherwise the first is copied and the others link to that.

// class names the class of a change's new side, or "".
func class(c *diff.Change) string {
	switch {
	case !shared(c.New):
		return ""
	case c.New.LinkOf != "":
		return c.New.LinkOf
	}
	return c.Path
}

// link decides which names stay what they are, which become links of an anchor,
// and which have to part from a file that they share now.
func (p *planner) link() error {
	p.anchors = map[string]string{}
	anchor := map[string]uint64{} // the inode that a class keeps
	owner := map[uint64]string{}  // and the class that an inode belongs to
	for _, o := range p.ops {
		if o.verb != alter || isDir(o.seen) || o.seen.NLink == 1 && !shared(o.change.New) {
			continue
		}
		k := class(&o.change)
		if k == "" {
			k = o.path
		}
		ino, anchored := anchor[k]
		of, taken := owner[o.seen.Ino]
		switch {
		case !anchored && !taken:
			anchor[k], owner[o.seen.Ino] = o.seen.Ino, k
			p.anchors[k] = o.path
		case taken && of == k && ino == o.seen.Ino:
		default:
			o.verb = swap // it gets a file of its own
			if err := p.placeOf(o); err != nil {
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

// refuseLinks refuses what would part a name from another that the changes do
// not mention.
func (p *planner) refuseLinks() error {
	names := map[uint64]uint32{}
	for _, o := range p.ops {
		if shared(o.seen) {
			names[o.seen.Ino]++
		}
		for _, i := range o.olds {
			names[i.ino]++
		}
	}
	var r pathlist.List
	for _, o := range p.ops {
		if !shared(o.seen) || names[o.seen.Ino] >= o.seen.NLink {
			continue
		}
		if o.verb == swap || o.verb == alter && o.change.What&^diff.Links != 0 {
			r.Add(o.path, "it has another name (a hard link) outside of the changes, which would keep the old content")
		}
	}
	return refused(&r, p.t.Path, errs.ErrConflict, "apply all names of the file together, or copy it by hand")
}
