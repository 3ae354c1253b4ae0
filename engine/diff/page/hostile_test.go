package page_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/snapfs/snapfs/internal/treetest"
)

// attempts try to leave text context, hide in it, or reverse it. Each is a valid file name.
var attempts = []string{
	`<script>pwned=1<` + "\u2215" + `script>`, `<script>pwned=1`, `"><script>pwned=1`, `'><script>pwned=1`, `--><script>pwned=1`, `]]><script>pwned=1`,
	`<img src=x onerror=pwned=1>`, `<svg onload=pwned=1>`, `<svg><script>pwned=1`, `<body onload=pwned=1>`, `<iframe srcdoc="&lt;script>pwned=1">`,
	`<details open ontoggle=pwned=1>`, `<input autofocus onfocus=pwned=1>`, `<a href=javascript:pwned=1>x`, `javascript:pwned=1`, `<base href=evil.example>`,
	`<meta http-equiv=refresh content=0;url=data:text,x>`, `<link rel=stylesheet href=x.css>`, `<style>*{display:none}`, `<style>@import 'x'`,
	`<form action=x><button>`, `<object data=x>`, `<embed src=x>`, `<math><mtext><table><mglyph><style><img src=x onerror=pwned=1>`, `<template><script>pwned=1`,
	`<noscript><p title="<img src=x onerror=pwned=1>">`, `<textarea>`, `<plaintext>`, `<xmp>`, `<title>`, `<table><tr><td>`, `<!--`, `<!doctype html>`, `<?xml?>`, `<![CDATA[`,
	`&lt;script&gt;pwned=1`, `&#60;script&#62;pwned=1`, `&NewLine;`, `&`, `&amp`, `&#x202e;`, `" onmouseover="pwned=1`, `' onmouseover='pwned=1`, "` onmouseover=`pwned=1",
	` style=x:expression(pwned=1) `, `\u003cscript\u003epwned=1`, `{{.}}`, `${pwned=1}`, `%3Cscript%3Epwned=1`, "+ADw-script+AD4-pwned=1", "\xbcscript\xbepwned=1",
	"<scr\x01ipt>pwned=1", "<\tscript\n>pwned=1", "<script\r>", "\x1b]0;title\x07\x1b[2J", "\x9b31m", "\u009b31m", "\x7f", "\v\f",
	"\u202egnp.exe", "\u2066a\u2069", "\u200f\u200e\u061c", "zero\u200bwidth\ufeff", "soft\u00adhyphen", "line\u2028sep\u2029", "\U000e0041\U000e0042", "\u3164filler", "a\U000e0101b", "a\ufe01b",
	"\xff\xfe", "\xc0\xbcscript\xc0\xbe", "\xed\xa0\x80", "\xf4\x90\x80\x80", "half\xe2\x80", "\ufffe\uffff", "\ufdd0", " lead and trail ", "\u00a0", "$(reboot)", "`reboot`", "; reboot #", "'; reboot; '", "-rf", "#f0", "~", "!x",
}

// hostile returns a pair in which every attempt appears in every possible role.
func hostile(t testing.TB) pair {
	old, new := tree{}, tree{}
	for i, a := range attempts {
		old["was"+fmt.Sprint(i)+a] = fmt.Sprintf("moved %d\n", i)
		new["is"+fmt.Sprint(i)+a] = fmt.Sprintf("moved %d\n", i)
		new["dir"+fmt.Sprint(i)+"/"+a+"/"+a] = a + "\n"
		new[a] = "x " + a
		old[fmt.Sprint("text", i)] = "one " + a + " two\n" + a + "\n"
		new[fmt.Sprint("text", i)] = "one " + a + " three\n</td></table></script></style></title>" + a
		old[fmt.Sprint("link", i)] = "->x" + a
		new[fmt.Sprint("link", i)] = "->" + a
	}
	p := build(t, old, new)
	for i, a := range attempts {
		file := filepath.Join(p.new, fmt.Sprint("text", i))
		must(t, syscall.Setxattr(file, "user."+a, []byte(a), 0))
	}
	return p
}

// values lists the only allowed values of attributes in a page.
var values = map[string]*regexp.Regexp{
	"class": regexp.MustCompile(`^(a|d|h|A|D|M|R|P|n|sr|sum|seen|skip|cmd|path|from|what|made|dir|more|note|warn)$`),
	"id":    regexp.MustCompile(`^(f\d+|about|both|close|files|filter|fold|help|help-title|keys|left|letters|none|seen|split|tools)$`),
	"href":  regexp.MustCompile(`^#(f\d+|files)$`),
	"title": regexp.MustCompile(`^(added|modified|deleted|renamed|attributes)$`),
	"type":  regexp.MustCompile(`^(checkbox|search|button)$`),
	"scope": regexp.MustCompile(`^(col|rowgroup)$`), "colspan": regexp.MustCompile(`^3$`), "tabindex": regexp.MustCompile(`^-1$`), "lang": regexp.MustCompile(`^en$`),
	"role": regexp.MustCompile(`^(search|status)$`), "datetime": regexp.MustCompile(`^[-0-9T:Z]+$`), "placeholder": regexp.MustCompile(`^Filter by path$`),
	"aria-label": regexp.MustCompile(`^(Changed paths|What is shown|Filter by path)$`), "aria-hidden": regexp.MustCompile(`^true$`),
	"aria-labelledby": regexp.MustCompile(`^help-title$`), "aria-haspopup": regexp.MustCompile(`^dialog$`), "aria-pressed": regexp.MustCompile(`^false$`),
	"hidden": regexp.MustCompile(`^$`), "open": regexp.MustCompile(`^$`), "checked": regexp.MustCompile(`^$`), "autocomplete": regexp.MustCompile(`^off$`), "spellcheck": regexp.MustCompile(`^false$`),
	"charset": regexp.MustCompile(`^utf-8$`), "name": regexp.MustCompile(`^(referrer|viewport)$`), "http-equiv": regexp.MustCompile(`^Content-Security-Policy$`),
	"content": regexp.MustCompile(`^(no-referrer|width=device-width|default-src 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'; style-src 'sha256-[^']+'; script-src 'sha256-[^']+')$`),
}

var elements = strings.Fields(`html head meta title style body a header div h1 h2 h3 p span b time code form input button output nav section bdi ul li details
	summary main article label dl dt dd del ins i em br table thead tbody tr th td dialog kbd script`)

func TestNothingOfATreeBecomesMarkup(t *testing.T) {
	p := hostile(t)
	for _, title := range []string{"demo", `</title><script>pwned=1</script>`, attempts[6], "\u202ex\x1b\xff"} {
		text, _ := p.write(t, title, "snapfs", "diff", title)
		doc, err := html.Parse(strings.NewReader(text))
		must(t, err)
		count := map[string]int{}
		for n := range doc.Descendants() {
			if n.Type == html.CommentNode && n.Data != " made by snapfs diff " {
				t.Errorf("a comment: %q", n.Data)
			}
			if n.Type != html.ElementNode {
				continue
			}
			count[n.Data]++
			if !slices.Contains(elements, n.Data) {
				t.Errorf("an element %q", n.Data)
			}
			for _, a := range n.Attr {
				if v := values[a.Key]; v == nil || !v.MatchString(a.Val) {
					t.Errorf("an attribute of %s: %s=%q", n.Data, a.Key, a.Val)
				}
			}
		}
		for _, one := range []string{"html", "head", "title", "body", "script", "style", "main", "nav", "header", "form", "dialog"} {
			if count[one] != 1 {
				t.Errorf("%d elements %q", count[one], one)
			}
		}
	}
}

func TestInvisibleCharactersAreShown(t *testing.T) {
	text, _ := hostile(t).write(t, "demo", "snapfs", "diff", "demo")
	if !utf8.ValidString(text) {
		t.Error("not UTF-8")
	}
	for at, r := range text {
		if r != '\n' && r != '\t' && r != 0x200c && r != 0x200d && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == 0x2028 || r == 0x2029 || r == 0x3164) {
			t.Errorf("%U in %q", r, text[max(0, at-40):at+4])
		}
	}
	for _, shown := range []string{
		"<i>&lt;U+202E&gt;</i>gnp.exe", "<i>^[</i>[2J", "<i>&lt;FF&gt;</i><i>&lt;FE&gt;</i>", "<i>&lt;U+200B&gt;</i>width", "<i>&lt;U+E0041&gt;</i>", "<i>^M</i>",
		"<i>␠</i>lead and trail<i>␠</i>", "<i>^J</i>", "&lt;img src=x onerror=pwned=1&gt;", "&amp;#60;script&amp;#62;", "a<i>&lt;U+E0101&gt;</i>b",
	} {
		if !strings.Contains(text, shown) {
			t.Errorf("the page lacks %q", shown)
		}
	}
}

// The page shows the file: with the signs for invisible characters decoded, each line of text
// is the line of the file.
func TestLinesAreShownWhole(t *testing.T) {
	text, _ := hostile(t).write(t, "demo", "snapfs", "diff", "demo")
	doc, err := html.Parse(strings.NewReader(text))
	must(t, err)
	shown := map[string]bool{}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == "td" {
			shown[textOf(n)] = true
		}
	}
	for _, a := range []string{`<img src=x onerror=pwned=1>`, `{{.}}`, `&lt;script&gt;pwned=1`, `<!--`, `<![CDATA[`, `" onmouseover="pwned=1`} {
		for _, want := range []string{a, "one " + a + " two", "one " + a + " three", "</td></table></script></style></title>" + a + "no newline at the end"} {
			if !shown[want] {
				t.Errorf("no line %q", want)
			}
		}
	}
}

func TestThePolicyNamesTheScriptAndTheStyle(t *testing.T) {
	text, _ := hostile(t).write(t, "demo", "snapfs", "diff", "demo")
	doc, err := html.Parse(strings.NewReader(text))
	must(t, err)
	policy := ""
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == "meta" && len(n.Attr) > 1 && n.Attr[0].Val == "Content-Security-Policy" {
			policy = n.Attr[1].Val
		}
	}
	for _, name := range []string{"style", "script"} {
		sum := sha256.Sum256([]byte(textOf(find(doc, name))))
		if want := name + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("%q lacks %q", policy, want)
		}
	}
	if body := strings.Index(text, "<body"); strings.Index(text, "Content-Security-Policy") > strings.Index(text, "<title") || body < 0 {
		t.Error("the policy comes after what it is about")
	}
	for _, from := range []string{"http:", "https:", "url(", "src=", "@import", "//cdn", "innerHTML", "eval(", "insertAdjacent", "document.write"} {
		for _, name := range []string{"style", "script"} {
			if strings.Contains(textOf(find(doc, name)), from) {
				t.Errorf("the %s holds %q", name, from)
			}
		}
	}
}

// A command on the page does the same when pasted into a shell, whatever names it contains.
func TestACommandCanBePasted(t *testing.T) {
	treetest.NeedProgram(t, "bash")
	new := tree{}
	for _, a := range attempts {
		new[a] = "\x00" // binary: its command is shown
	}
	text, _ := build(t, tree{}, new).write(t, "demo", "printf", `<%s>\0`)
	doc, err := html.Parse(strings.NewReader(text))
	must(t, err)
	seen := map[string]bool{}
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode || n.Data != "code" || !strings.Contains(textOf(n), "--patch") {
			continue
		}
		out, err := exec.Command("bash", "-c", textOf(n)).Output()
		must(t, err)
		got := strings.TrimSuffix(strings.TrimPrefix(string(out), "<--patch>\x00<"), ">\x00")
		seen[strings.TrimPrefix(got, "/work/")] = true
	}
	for _, a := range attempts {
		if !seen[a] {
			t.Errorf("no command names %q", a)
		}
	}
}

// The types keep foreign text out of markup as long as nothing is converted.
func TestNothingIsConvertedToMarkup(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	calls := 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			calls++
			if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "markup" {
				t.Errorf("%s converts to markup", name)
			}
			return true
		})
	}
	if calls < 100 {
		t.Errorf("only %d calls were looked at", calls)
	}
}
