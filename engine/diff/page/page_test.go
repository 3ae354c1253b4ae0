package page_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/page"
	"github.com/snapfs/snapfs/internal/treetest"
)

var update = flag.Bool("update", false, "write what tests get as what they want")

// A tree maps paths to contents; "->x" is a symbolic link to x.
type tree map[string]string

// A pair is two trees on disk.
type pair struct{ old, new string }

func build(t testing.TB, old, new tree) pair {
	t.Helper()
	dir := treetest.Dir(t)
	p := pair{filepath.Join(dir, "old"), filepath.Join(dir, "new")}
	long := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for root, tr := range map[string]tree{p.old: old, p.new: new} {
		must(t, os.Mkdir(root, 0o755))
		for path, content := range tr {
			full := filepath.Join(root, path)
			must(t, os.MkdirAll(filepath.Dir(full), 0o755))
			if target, link := strings.CutPrefix(content, "->"); link {
				must(t, os.Symlink(target, full))
				continue
			}
			must(t, os.WriteFile(full, []byte(content), 0o644))
			must(t, os.Chtimes(full, long, long))
		}
	}
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes the page of the pair.
func (p pair) write(t testing.TB, title string, command ...string) (string, page.Written) {
	t.Helper()
	ctx := context.Background()
	old, new := treetest.Open(t, p.old), treetest.Open(t, p.new)
	changes, err := diff.Trees(ctx, old, new, diff.Options{})
	must(t, err)
	renames, err := diff.Renames(ctx, old, new, changes, diff.Options{})
	must(t, err)
	var out bytes.Buffer
	got, err := page.Write(ctx, &out, page.Page{
		Title: title, Command: command, Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Parts: []page.Part{{Root: "/work", Old: old, New: new, Changes: changes, Renames: renames}},
	})
	must(t, err)
	if got.Size != int64(out.Len()) {
		t.Errorf("said to be %d bytes, is %d", got.Size, out.Len())
	}
	return out.String(), got
}

// everything is a pair with each kind of change.
func everything(t testing.TB) pair {
	long := strings.Repeat("the same line\n", 30)
	p := build(t,
		tree{
			"conf": "port = 80\nhost = a\n", "gone": "bye\n", "bin/tool": "\x00old", "link": "->a", "was/name": "one\n" + long, "mode": "m\n",
			"noeol": "x\n", "time": "t\n", "typed": "f\n", "attr": "a\n", "far": "first\n" + long + "last\n", "alike/a": "1\n", "emptied": "x\n",
		},
		tree{
			"conf": "port = 8080\nhost = a\nidle = 1\n", "new/deep/file": "hi\n", "bin/tool": "\x00newer", "link": "->b", "is/name": "two\n" + long, "mode": "m\n",
			"noeol": "x", "time": "t\n", "typed": "->f", "attr": "a\n", "far": "First\n" + long + "Last\n", "alike/a": "1\n", "empty": "", "emptied": "",
		})
	must(t, os.Chmod(filepath.Join(p.new, "mode"), 0o4755))
	must(t, syscall.Mkfifo(filepath.Join(p.new, "pipe"), 0o644))
	must(t, os.Chtimes(filepath.Join(p.new, "time"), time.Unix(0, 0), time.Unix(1e9, 0)))
	must(t, syscall.Setxattr(filepath.Join(p.new, "attr"), "user.note", []byte("\x01v"), 0))
	return p
}

func TestAPageShowsEveryKindOfChange(t *testing.T) {
	// The mode of a pipe depends on the mask of the process, as that of the files does not:
	// both are 0644.
	text, _ := everything(t).write(t, "demo", "snapfs", "diff", "demo")
	doc, err := html.Parse(strings.NewReader(text))
	must(t, err)
	var b strings.Builder
	outline(&b, find(doc, "body"), 0)
	const golden = "testdata/everything.txt"
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if b.String() != string(want) {
		t.Errorf("the page is not as in %s (-update writes it):\n%s", golden, b.String())
	}
}

// outline writes elements with their text, a line each; tables as rows.
func outline(b *strings.Builder, n *html.Node, deep int) {
	indent := strings.Repeat("  ", deep)
	switch {
	case n.Type == html.TextNode:
		if s := strings.TrimSpace(n.Data); s != "" {
			fmt.Fprintf(b, "%s%q\n", indent, s)
		}
		return
	case n.Data == "script" || n.Data == "dialog":
		fmt.Fprintf(b, "%s<%s>\n", indent, n.Data)
		return
	}
	b.WriteString(indent + "<" + n.Data)
	for _, a := range n.Attr {
		fmt.Fprintf(b, " %s=%q", a.Key, a.Val)
	}
	b.WriteString(">\n")
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		outline(b, c, deep+1)
	}
}

// find returns the first element of a name.
func find(n *html.Node, name string) *html.Node {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == name {
			return d
		}
	}
	return nil
}

// textOf returns all text in a node.
func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func TestUnreadableFilesAreReported(t *testing.T) {
	p := build(t, tree{"a": "one\n", "b": "one\n"}, tree{"a": "two\n", "b": "two!\n"})
	ctx := context.Background()
	old, new := treetest.Open(t, p.old), treetest.Open(t, p.new)
	changes, err := diff.Trees(ctx, old, new, diff.Options{})
	must(t, err)
	must(t, os.Remove(filepath.Join(p.new, "a")))
	must(t, os.Remove(filepath.Join(p.new, "b")))
	must(t, syscall.Mkfifo(filepath.Join(p.new, "b"), 0o600))
	var out bytes.Buffer
	got, err := page.Write(ctx, &out, page.Page{Parts: []page.Part{{Root: "/w", Old: old, New: new, Changes: changes}}})
	must(t, err)
	if got.Unread != 2 || !strings.Contains(out.String(), "could not be read: no such file") || !strings.Contains(out.String(), "no longer a regular file") {
		t.Errorf("%+v:\n%s", got, out.String())
	}
}

func TestAnInterruptedPageIsAnError(t *testing.T) {
	p := build(t, tree{}, tree{"a": "1\n"})
	old, new := treetest.Open(t, p.old), treetest.Open(t, p.new)
	changes, err := diff.Trees(context.Background(), old, new, diff.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := page.Write(ctx, &bytes.Buffer{}, page.Page{Parts: []page.Part{{Root: "/w", Old: old, New: new, Changes: changes}}}); err == nil {
		t.Error("no error")
	}
	if _, err := page.Write(context.Background(), full{}, page.Page{}); err == nil {
		t.Error("a full disk is no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fs.ErrInvalid }

func TestEmptyPageSaysSo(t *testing.T) {
	text, got := build(t, tree{"a": "1\n"}, tree{"a": "1\n"}).write(t, "demo", "snapfs", "diff", "demo")
	if got.Paths != 0 || !strings.Contains(text, "Nothing changed") {
		t.Errorf("%+v:\n%s", got, text)
	}
}

// No page exceeds its bound, however many and odd the changes, and it says what it leaves out.
func TestPageIsBoundedAndListsOmissions(t *testing.T) {
	lots, names, lines := tree{}, tree{}, tree{}
	for i := range 120 {
		lots[fmt.Sprintf("f%03d", i)] = strings.Repeat("<<<<<<<<<<<<<<<<<<<<<\xff\x01>\n", 4000)
	}
	for i := range 3000 {
		names[strings.Repeat("\xff", 200)+"/"+strings.Repeat("\x01<", 100)+fmt.Sprint(i)] = "x\n"
	}
	lines["one"] = strings.Repeat("\xff", 7<<20)
	lines["many"] = strings.Repeat("\n", 150_000)
	lines["too many"] = strings.Repeat("\n", 5<<20)
	for what, c := range map[string]struct {
		new  tree
		says []string
		left bool
	}{
		"content": {lots, []string{"more paths left out, for the size of this page", "snapfs diff demo --patch", "more lines left out", "--patch /work/f000"}, true},
		"names":   {names, []string{"more paths not listed", "snapfs diff demo"}, true},
		"lines":   {lines, []string{"147,000 more lines left out", "Too large to be compared line by line here", "7,338,032 more bytes in this line"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			text, got := build(t, tree{}, c.new).write(t, "demo", "snapfs", "diff", "demo")
			if len(text) > page.Max {
				t.Errorf("%d bytes", len(text))
			}
			if c.left != (got.LeftOut > 0) {
				t.Errorf("%d of %d are left out", got.LeftOut, got.Paths)
			}
			if n := strings.Count(text, "<article"); n != got.Paths-got.LeftOut {
				t.Errorf("%d sections, of %d paths without %d", n, got.Paths, got.LeftOut)
			}
			for _, says := range c.says {
				if !strings.Contains(text, says) {
					t.Errorf("it does not say %q", says)
				}
			}
		})
	}
}

func TestHugeFilesAreNotRead(t *testing.T) {
	p := build(t, tree{}, tree{})
	f, err := os.Create(filepath.Join(p.new, "huge"))
	must(t, err)
	must(t, f.Truncate(1<<40))
	f.Close()
	start := time.Now()
	text, _ := p.write(t, "demo", "snapfs", "diff", "demo")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if !strings.Contains(text, "1.0 TiB, 1,099,511,627,776 bytes") || !strings.Contains(text, "Too large to be read for this page") {
		t.Errorf("%s", text[strings.Index(text, "<main"):])
	}
}
