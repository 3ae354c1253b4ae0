package merge

import (
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// A Kind is what two sides do not agree on. The values are stable.
type Kind string

// The kinds of conflict.
const (
	// Content: both changed the same lines of a text.
	Content Kind = "content"
	// Binary: both changed a file that is not text, or too long to be merged.
	Binary Kind = "binary"
	// NoBase: both changed it, and what it was is not known any more.
	NoBase Kind = "no-base"
	// AddAdd: both added a file, each with another content.
	AddAdd Kind = "add-add"
	// ChangeDelete: the sandbox changed what the real tree deleted, or something
	// in a directory that the real tree deleted. DeleteChange: the other way round.
	ChangeDelete Kind = "change-delete"
	DeleteChange Kind = "delete-change"
	// Type: both made something else of it, or one did and the other changed it.
	Type Kind = "type"
	// Directory: one side has a file where the other has a directory with content.
	Directory Kind = "directory"
	// Mode, Owner, Xattrs, Target and Device: both gave it another of these. An
	// access control list and the permission bits are one thing, told as Mode.
	Mode   Kind = "mode"
	Owner  Kind = "owner"
	Xattrs Kind = "xattrs"
	Target Kind = "target"
	Device Kind = "device"
	// Links: which names are one file (hard links) differs, or one side
	// changed that and the other the file.
	Links Kind = "links"
	// RenameRename: both moved it, to different places, or moved two things to
	// one place. RenameDelete: one moved it, and the other deleted it. RenameAdd:
	// one moved something to where the other made something.
	RenameRename Kind = "rename-rename"
	RenameDelete Kind = "rename-delete"
	RenameAdd    Kind = "rename-add"
)

// A Conflict is a place that has no single answer. It names both sides.
type Conflict struct {
	// Path is where the merged tree would have it. The conflict is about all that
	// lies beneath it, too, but where it is Alone.
	Path string
	Kind Kind
	// What each side has; nil where it has nothing there.
	Base, Mine, Real *diff.Node
	// Where each has it, where that is not Path; else "".
	BasePath, MinePath, RealPath string
	// Also are the other places that it is about: where either side has what has
	// to wait for the same answer. None lies beneath another.
	Also []string
	// Alone: it is about a directory itself, and not about what lies in it.
	Alone bool
	// Several: it is about more than one file, and so is its answer. Neither marks
	// nor a merge tool can tell of them all.
	Several bool
	// Why completes "PATH: ".
	Why string
	// Marked: both sides are texts, so that [Marks] can write both between marks.
	Marked bool
}

// Places are all the places that a conflict is about, and, but where it is Alone, all
// beneath them: where either side has what the merge has left.
func (c *Conflict) Places() []string {
	var all []string
	for _, path := range append([]string{c.Path, c.MinePath, c.RealPath}, c.Also...) {
		if path != "" {
			all = append(all, path)
		}
	}
	return all
}

// about has a conflict be about things, wherever the sides have them.
func (c *Conflict) about(things []*thing) {
	var also []string
	for _, t := range things {
		also = append(also, t.on[mine].path, t.on[real].path)
	}
	c.addPlaces(also)
	c.Several = c.Several || len(things) > 1
	c.Marked = c.Marked && !c.Several
}

// takeIn has a conflict be about all that others are about.
func (c *Conflict) takeIn(others []*Conflict) {
	var also []string
	for _, other := range others {
		also = append(also, other.Places()...)
	}
	c.addPlaces(also)
	c.Several, c.Marked = true, false
}

// addPlaces adds those that do not lie in one that it has.
func (c *Conflict) addPlaces(paths []string) {
	told := roots{}
	for _, path := range c.Places() {
		told.add(path)
	}
	slices.SortFunc(paths, byPath)
	for _, path := range paths {
		if told.add(path) {
			c.Also = append(c.Also, path)
		}
	}
	slices.SortFunc(c.Also, byPath)
}

// united are conflicts of which none has a place in that of another: what answers
// the one would take from the other what it keeps.
func united(all []Conflict) []Conflict {
	into, at := make([]int, len(all)), map[string]int{} // the conflict that has taken one in; by place
	last := func(i int) int {
		for into[i] != i {
			i = into[i]
		}
		return i
	}
	for i := range all {
		into[i] = i
		for _, path := range all[i].places() {
			if _, told := at[path]; !told {
				at[path] = i
			}
		}
	}
	for i := range all {
		for _, path := range all[i].places() {
			for ; path != "."; path = parent(path) {
				if outer, ok := at[path]; ok && last(outer) != last(i) {
					into[last(i)] = last(outer)
				}
			}
		}
	}
	taken := map[int][]*Conflict{}
	for i := range all {
		if to := last(i); to != i {
			taken[to] = append(taken[to], &all[i])
		}
	}
	var left []Conflict
	for i := range all {
		if into[i] != i {
			continue
		}
		if len(taken[i]) > 0 {
			all[i].takeIn(taken[i])
		}
		left = append(left, all[i])
	}
	return left
}

// places are those of a conflict that is about all beneath them.
func (c *Conflict) places() []string {
	if c.Alone {
		return nil
	}
	return c.Places()
}

// roots are places, each with all beneath it.
type roots map[string]bool

// add reports whether a path was not in one of them.
func (r roots) add(path string) bool {
	for at := path; at != "."; at = parent(at) {
		if at == "" || r[at] {
			return false
		}
	}
	if path != "." {
		r[path] = true
	}
	return path != "."
}
