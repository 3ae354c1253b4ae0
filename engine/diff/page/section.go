package page

import (
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
)

// section writes the HTML section of the page about the changed path number i: its heading, attributes and
// lines.
func (b *builder) section(i int) {
	e := &b.all[i]
	part := b.page.Parts[e.part]
	var read [2]content
	var failed error
	if b.compares(e) {
		from := e.Path
		if e.From != "" {
			from = e.From
		}
		if read[0], failed = b.read(part.Old, from, e.old); failed == nil {
			read[1], failed = b.read(part.New, e.Path, e.New)
		}
	}
	var all []hunk
	text := failed == nil && (read[0].there || read[1].there) && !read[0].binary && !read[1].binary
	if text {
		all, e.lines = hunks(read[0], read[1])
	}

	buf := b.files[e.part]
	before := buf.Len()
	s := newSheet(buf)
	s.mark("\n<article id=f")
	s.num(i)
	s.mark("><label class=seen hidden><input type=checkbox autocomplete=off> reviewed</label><details open><summary>")
	b.heading(s, e)
	s.mark("</summary>")
	facts := b.facts(e)
	if !text && failed == nil {
		facts = append(facts, sizes(read)...)
	}
	writeFacts(s, facts)
	switch {
	case failed != nil:
		b.unread++
		s.mark("<p class=warn>Its content could not be read: ")
		s.text(why(failed))
	case read[0].binary || read[1].binary:
		b.binary(s, e, read)
	case text:
		b.text(s, e, all, read)
	}
	s.mark("</details></article>")
	_ = s.w.Flush() // a buffer accepts every write
	b.used += buf.Len() - before
}

// compares reports whether the content of a changed path on the page may differ, so that its file must be
// read.
func (b *builder) compares(e *entry) bool {
	return e.Kind != diff.Modified || e.What&(diff.Content|diff.Type) != 0
}

// heading writes the heading of the page's section about a changed path: the kind of change, the path, and
// the number of lines added and removed.
func (b *builder) heading(s *sheet, e *entry) {
	s.mark("<h3>")
	badge(s, e)
	s.mark("<bdi class=path>")
	dir, name := e.Path[:strings.LastIndexByte(e.Path, '/')+1], e.Path[strings.LastIndexByte(e.Path, '/')+1:]
	if dir != "" {
		s.mark("<span>")
		s.name(dir)
		s.mark("</span>")
	}
	s.name(name)
	s.mark("</bdi></h3> ")
	if e.From != "" {
		s.mark("<span class=from>from <bdi>")
		s.name(e.From)
		s.mark("</bdi></span> ")
	}
	s.mark("<span class=what>")
	s.raw(what(e))
	s.mark("</span> ")
	count(s, e.lines)
}

// text writes the changed lines of a text file to the page, or why there are none.
func (b *builder) text(s *sheet, e *entry, all []hunk, read [2]content) {
	switch {
	case len(all) > 0:
		if left := lines(s, all); left > 0 {
			s.mark("<p class=more>")
			s.raw(many(left, "more line"))
			s.mark(" left out: ")
			b.command(s, "--patch", b.path(e))
		}
	case read[0].there && read[1].there && e.rename == nil && e.What&diff.Content != 0:
		s.mark("<p class=note>Both sides are equal now: the file changed while this page was made.")
	case !read[0].there || !read[1].there:
		s.mark("<p class=note>The file is empty.")
	}
}

// binary writes why the page shows no lines of a file (binary, or too large), and the command
// that shows it as a patch.
func (b *builder) binary(s *sheet, e *entry, read [2]content) {
	s.mark("<p class=note>")
	switch size := max(read[0].size, read[1].size); {
	case size > HashMax:
		s.mark("Too large to be read for this page")
	case size > TextMax, read[0].long, read[1].long:
		s.mark("Too large to be compared line by line here")
	default:
		s.mark("Binary")
	}
	s.mark(". As a patch: ")
	b.command(s, "--patch", b.path(e))
}

// badge writes the kind of a change to the page: a letter, and a word for screen readers.
func badge(s *sheet, e *entry) {
	switch {
	case e.From != "":
		s.mark(`<b class=R title=renamed aria-hidden=true>R</b><span class=sr>renamed</span>`)
	case e.Kind == diff.Added:
		s.mark(`<b class=A title=added aria-hidden=true>A</b><span class=sr>added</span>`)
	case e.Kind == diff.Deleted:
		s.mark(`<b class=D title=deleted aria-hidden=true>D</b><span class=sr>deleted</span>`)
	case e.What&(diff.Content|diff.Type|diff.Target|diff.Device) == 0:
		s.mark(`<b class=P title=attributes aria-hidden=true>M</b><span class=sr>modified in attributes only</span>`)
	default:
		s.mark(`<b class=M title=modified aria-hidden=true>M</b><span class=sr>modified</span>`)
	}
	s.mark(" ")
}

// what returns in words the type of an added or deleted path, or the aspects in which a modified one differs.
// The text needs no escape, since it contains nothing from a tree.
func what(e *entry) string {
	switch {
	case e.rename != nil && e.old != nil:
		if names := e.rename.Differs(e.old, e.New).Names(); len(names) > 0 {
			return strings.Join(names, ", ")
		}
		return diff.TypeName(e.New.Mode)
	case e.Kind == diff.Added:
		return diff.TypeName(e.New.Mode)
	case e.Kind == diff.Deleted:
		return diff.TypeName(e.old.Mode)
	case e.What&diff.Type != 0:
		return diff.TypeName(e.old.Mode) + " to " + diff.TypeName(e.New.Mode)
	case e.What&^diff.Time != 0:
		return strings.Join((e.What &^ diff.Time).Names(), ", ")
	}
	return "time"
}

// count writes to the page the number of lines added to and removed from a file, if n is known.
func count(s *sheet, n lineCount) {
	if !n.known || n.added+n.removed == 0 {
		return
	}
	s.mark("<span class=n>")
	if n.added > 0 {
		s.mark("<ins>+")
		s.raw(thousands(n.added))
		s.mark("</ins>")
	}
	if n.added > 0 && n.removed > 0 {
		s.mark(" ")
	}
	if n.removed > 0 {
		s.mark("<del>−")
		s.raw(thousands(n.removed))
		s.mark("</del>")
	}
	s.mark("</span>")
}
