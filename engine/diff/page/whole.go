package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"time"
)

// Beginning is the start of every review page. By it the command that writes a page knows an earlier page, which it
// may replace, from a file of the user's.
const Beginning = "<!doctype html><!-- made by snapfs diff -->\n"

// style is the CSS of the page of changes, which the page contains.
//
//go:embed page.css
var style markup

// script is the JavaScript of the page of changes, which the page contains. The page is readable without it.
//
//go:embed page.js
var script markup

// hash returns the SHA-256 of the page's style or script, by which the page's content security policy permits
// it.
func hash(m markup) string {
	sum := sha256.Sum256([]byte(m))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// document writes the whole page of changes: the head, the header, the tree of paths and the sections of the
// files.
func (b *builder) document(s *sheet) {
	s.mark(Beginning, "<html lang=en><head><meta charset=utf-8>\n",
		`<meta http-equiv=Content-Security-Policy content="default-src 'none'; base-uri 'none'; form-action 'none'; `,
		`require-trusted-types-for 'script'; trusted-types 'none'; style-src `)
	s.raw(hash(style))
	s.mark("; script-src ")
	s.raw(hash(script))
	s.mark("\">\n<meta name=referrer content=no-referrer><meta name=viewport content=\"width=device-width\">\n<title>")
	s.title(clippedName(b.page.Title))
	s.mark("</title>\n<style>", style, "</style></head>\n<body>\n")
	s.mark("<a class=skip href=#files>Skip to the changes</a>\n")
	b.header(s)
	s.mark("<div id=both>\n<nav aria-label=\"Changed paths\">\n")
	b.paths(s)
	s.mark("</nav>\n<main id=files tabindex=-1>\n")
	b.main(s)
	s.mark("</main>\n</div>\n")
	s.mark(keys, "<script>", script, "</script>\n</body></html>\n")
}

func clippedName(t string) string {
	if len(t) > nameMax {
		return t[:nameMax] + "…"
	}
	return t
}

// keys is the help text for the keys of the page of changes; the page's script shows it.
const keys markup = `<dialog id=help aria-labelledby=help-title><h2 id=help-title>Keys</h2>
<dl><dt><kbd>j</kbd> <kbd>k</kbd><dd>next and previous file
<dt><kbd>n</kbd> <kbd>p</kbd><dd>next and previous change
<dt><kbd>x</kbd><dd>mark the file as reviewed, and go on
<dt><kbd>o</kbd><dd>fold or unfold the file
<dt><kbd>s</kbd><dd>side by side, or one below the other
<dt><kbd>/</kbd><dd>filter by path
<dt><kbd>?</kbd><dd>this list</dl>
<p><label><input type=checkbox id=letters checked autocomplete=off> single letters are keys</label>
<p><button id=close>Close</button></dialog>
`

// header writes the top of the page of changes: the title, the totals and the controls.
func (b *builder) header(s *sheet) {
	s.mark("<header>\n<div id=about><h1>")
	s.name(b.page.Title)
	s.mark("</h1>\n<p>")
	b.summary(s)
	s.mark("</p>\n<p class=made><time datetime=\"")
	s.raw(b.page.Made.UTC().Format(time.RFC3339))
	s.mark("\">")
	s.raw(b.page.Made.UTC().Format("2 January 2006, 15:04 UTC"))
	s.mark("</time> ")
	b.command(s)
	s.mark("</p></div>\n",
		`<form id=tools hidden role=search aria-label="What is shown">`,
		`<input id=filter type=search placeholder="Filter by path" aria-label="Filter by path" autocomplete=off spellcheck=false>`,
		`<button type=button id=split aria-pressed=false>Side by side</button>`,
		`<button type=button id=fold>Fold all</button>`,
		`<button type=button id=keys aria-haspopup=dialog>Keys</button>`,
		`<output id=seen></output></form>`+"\n</header>\n")
}

// summary writes the totals of the comparison to the page: the number of changes of each kind, of lines, and
// of bytes.
func (b *builder) summary(s *sheet) {
	if len(b.all) == 0 {
		s.mark("Nothing changed")
		return
	}
	for _, n := range []struct {
		n    int
		kind markup
		what string
	}{
		{b.sum.Added - b.renamed, "<b class=A aria-hidden=true>A</b>", "added"},
		{b.sum.Modified, "<b class=M aria-hidden=true>M</b>", "modified"},
		{b.sum.Deleted - b.renamed, "<b class=D aria-hidden=true>D</b>", "deleted"},
		{b.renamed, "<b class=R aria-hidden=true>R</b>", "renamed"},
	} {
		if n.n > 0 {
			s.mark("<span class=sum>", n.kind, " ")
			s.raw(thousands(n.n) + " " + n.what)
			s.mark("</span> ")
		}
	}
	if b.added+b.removed > 0 {
		s.mark("<span class=sum>")
		count(s, lineCount{b.added, b.removed, true})
		s.mark(" lines</span> ")
	}
	if b.sum.Grown > 0 {
		s.mark("<span class=sum>")
		s.raw(b.sum.Grown.String())
		s.mark(" more</span> ")
	}
	if b.sum.Shrunk > 0 {
		s.mark("<span class=sum>")
		s.raw(b.sum.Shrunk.String())
		s.mark(" less</span>")
	}
}

// paths writes to the review page (HTML) a tree of the changed paths for each part, which is the changes
// below one directory such as the workspace. After pathsMax bytes in all it leaves out the rest, and says how
// many paths those are.
func (b *builder) paths(s *sheet) {
	left, room := 0, s.n+pathsMax
	for i, p := range b.page.Parts {
		if !b.any(i) {
			continue
		}
		s.mark("<section><h2><bdi>")
		s.name(p.Root)
		s.mark("</bdi></h2>")
		left += b.tree(s, i, room)
		s.mark("</section>\n")
	}
	if left > 0 {
		s.mark("<p class=more>")
		s.raw(many(left, "more path"))
		s.mark(" not listed: ")
		b.command(s)
		s.mark("\n")
	}
}

// any reports whether part number part of the page, the changes below one directory of the sandbox, has changed paths
// that the page shows. The page leaves out other parts.
func (b *builder) any(part int) bool {
	for i := range b.all {
		if b.all[i].part == part {
			return true
		}
	}
	return false
}

// main writes the sections of the changed files of all parts to the page, and a note about those left out.
func (b *builder) main(s *sheet) {
	if len(b.all) == 0 {
		s.mark("<p class=note>There is nothing to review.\n")
	}
	for i, p := range b.page.Parts {
		if b.files[i].Len() == 0 {
			continue
		}
		s.mark("<section><h2>in <bdi>")
		s.name(p.Root)
		s.mark("</bdi></h2>")
		s.raw(b.files[i].String())
		s.mark("\n</section>\n")
	}
	if b.leftOut > 0 {
		s.mark("<p class=more id=left>")
		s.raw(many(b.leftOut, "more path"))
		s.mark(" left out, for the size of this page: ")
		b.command(s, "--patch")
		s.mark("\n")
	}
	s.mark("<p class=note id=none role=status hidden>No path is like that.\n")
}
