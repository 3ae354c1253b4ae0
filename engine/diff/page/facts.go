package page

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A fact is an attribute of a changed path other than its content, such as its mode, before and after the
// change, for the page. It is "" if the path does not exist then.
type fact struct {
	name     string
	old, new string
	// warn is set for an attribute that a reviewer should notice, because it grants rights to
	// every user who runs the file.
	warn bool
}

// facts lists for the page the attributes of a changed path, such as mode and owner, that differ, or that are
// unusual in an added or deleted one.
func (b *builder) facts(e *entry) (all []fact) {
	old, new := e.old, e.New
	add := func(when bool, name string, of func(*diff.Node) string, warn bool) {
		f := fact{name: name, warn: warn}
		if old != nil {
			f.old = of(old)
		}
		if new != nil {
			f.new = of(new)
		}
		if when && (f.old != "" || f.new != "") {
			all = append(all, f)
		}
	}
	if old != nil && new != nil {
		add(old.Mode.Type() != new.Mode.Type(), "type", func(n *diff.Node) string { return diff.TypeName(n.Mode) }, false)
		add(old.Mode != new.Mode, "mode", mode, setID(new))
		add(old.UID != new.UID || old.GID != new.GID, "owner", owner, false)
	} else {
		add(!ordinary(old, new), "mode", mode, setID(new))
	}
	add(true, "target", func(n *diff.Node) string { return n.Target }, false)
	add(true, "device", device, new != nil && new.Rdev != 0)
	add(old == nil || new == nil || e.What&diff.Links != 0, "hard link of", func(n *diff.Node) string { return n.LinkOf }, false)
	// A change of content or target implies one of the time.
	add(e.Kind == diff.Modified && e.What&diff.Time != 0 && e.What&(diff.Content|diff.Target) == 0, "modified",
		func(n *diff.Node) string { return n.MTime.UTC().Format(time.DateTime + ".999999999 UTC") }, false)
	if e.rename != nil && !e.rename.Exact && e.rename.Similarity > 0 {
		percent := strconv.Itoa(e.rename.Similarity) + " %"
		all = append(all, fact{name: "similarity", old: percent, new: percent})
	}
	return append(all, xattrs(old, new)...)
}

// setID reports whether a file has the set-user-id or set-group-id bit; n may be nil.
func setID(n *diff.Node) bool { return n != nil && n.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 }

// ordinary reports whether an added or deleted node has a usual mode, 0644 or 0755 for a directory, so that
// the page need not show it. One of old and new is nil.
func ordinary(old, new *diff.Node) bool {
	n := new
	if n == nil {
		n = old
	}
	switch {
	case n.Mode.IsDir():
		return n.Mode.Perm() == 0o755 && n.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) == 0
	case n.Mode&fs.ModeSymlink != 0:
		return true
	}
	return n.Mode == 0o644
}

func mode(n *diff.Node) string { return diff.Octal(n.Mode) + " " + n.Mode.String() }

func owner(n *diff.Node) string { return fmt.Sprintf("%d:%d", n.UID, n.GID) }

func device(n *diff.Node) string {
	if n.Mode&fs.ModeDevice == 0 {
		return ""
	}
	return fmt.Sprintf("%d, %d", unix.Major(n.Rdev), unix.Minor(n.Rdev))
}

// xattrs returns the extended attributes in which two nodes differ, for the page; either node may be nil.
func xattrs(old, new *diff.Node) (all []fact) {
	var sides [2]map[string]string
	for i, n := range []*diff.Node{old, new} {
		if n != nil {
			sides[i] = n.Xattrs
		}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(sides[0])), maps.Keys(sides[1]))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		was, had := sides[0][name]
		is, has := sides[1][name]
		if was == is && had == has {
			continue
		}
		f := fact{name: name, warn: has && name == "security.capability"}
		if had {
			f.old = strconv.Quote(clipped(was))
		}
		if has {
			f.new = strconv.Quote(clipped(is))
		}
		if f.old == f.new { // they differ beyond the shown part
			f.new += fmt.Sprintf(" … %d bytes", len(is))
		}
		all = append(all, f)
	}
	return all
}

func clipped(value string) string {
	if len(value) > valueMax {
		return value[:valueMax] + "…"
	}
	return value
}

// sizes returns the size and the SHA-256 of a changed file, as facts for the page. read has both versions;
// the page does not show them line by line.
func sizes(read [2]content) []fact {
	if !read[0].there && !read[1].there {
		return nil
	}
	var size, sum fact
	size.name, sum.name = "size", "SHA-256"
	for i, to := range []*string{&size.old, &size.new} {
		if read[i].there {
			*to = sizeOf(read[i].size)
		}
	}
	sum.old, sum.new = read[0].sum, read[1].sum
	if sum.old == "" && sum.new == "" {
		return []fact{size}
	}
	return []fact{size, sum}
}

// sizeOf returns a size in bytes as text for the page, with the exact number if the rest is rounded.
func sizeOf(n int64) string {
	bytes := many(int(n), "byte")
	if n < 1024 {
		return bytes
	}
	return snapshot.Bytes(n).String() + ", " + bytes
}

// writeFacts writes the attributes of a changed path to the page as a list, the old value struck out beside
// the new one.
func writeFacts(s *sheet, all []fact) {
	if len(all) == 0 {
		return
	}
	s.mark("<dl>")
	for i, f := range all {
		if i >= factsMax {
			s.mark("<dt>and<dd>")
			s.raw(many(len(all)-i, "more attribute"))
			break
		}
		if f.warn {
			s.mark("<dt class=warn>")
		} else {
			s.mark("<dt>")
		}
		s.name(f.name)
		s.mark("<dd>")
		switch {
		case f.old == f.new:
			s.name(f.new)
		case f.old == "":
			s.mark("<ins>")
			s.name(f.new)
			s.mark("</ins>")
		case f.new == "":
			s.mark("<del>")
			s.name(f.old)
			s.mark("</del>")
		default:
			s.mark("<del>")
			s.name(f.old)
			s.mark("</del>")
			if len(f.old)+len(f.new) > 100 {
				s.mark("<br>")
			}
			s.mark(" → <ins>")
			s.name(f.new)
			s.mark("</ins>")
		}
	}
	s.mark("</dl>")
}

// factsMax is how many attributes of one path the page shows at most, since a file may have any number of
// extended attributes.
const factsMax = 40
