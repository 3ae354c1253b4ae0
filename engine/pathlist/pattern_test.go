package pathlist_test

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/pathlist"
)

// The expected answers are those of git check-ignore, but for a name without a wildcard, which
// is a path here.
func TestPatternMatchesAsGitIgnoreDoes(t *testing.T) {
	for _, c := range []struct {
		pattern string
		matches []string
		not     []string
	}{
		{"**/*.md", []string{"a.md", "d/b.md", "d/e/c.md", "d/x.md/in"}, []string{"a.mdx", "md"}},
		{"*.md", []string{"a.md", "d/e/c.md", "d/x.md/in"}, []string{"a.mdx"}},
		{"d/*.md", []string{"d/b.md"}, []string{"d/e/c.md", "x/d/b.md", "a.md"}},
		{"d/**", []string{"d/b", "d/e/c"}, []string{"d", "dd/b"}},
		{"d/**/c", []string{"d/c", "d/e/c", "d/e/f/c/in"}, []string{"d/e", "x/d/c"}},
		{"**/.travis.yml", []string{".travis.yml", "node_modules/p/.travis.yml"}, []string{"x.travis.yml"}},
		{"**/d", []string{"d", "e/d", "e/d/in"}, []string{"dd"}},
		{"src", []string{"src", "src/deep/in"}, []string{"x/src", "srcs"}},
		{"src/", []string{"src", "src/in"}, []string{"x/src"}},
		{"a?[bc]", []string{"axb", "d/a1c"}, []string{"ab", "a/b"}},
		{"[", []string{"[", "[/in"}, []string{"x"}},
		{"w [1]/x", []string{"w [1]/x"}, nil},
		{`\*`, []string{"*", "*/in"}, []string{"x", `\*`, `\*/in`, "d/*"}},
		{`d/a\[1]\\x`, []string{`d/a[1]\x/in`}, []string{`d/a1\x`, `d/a\[1]\\x`}},
		{".", []string{"a", "d/e"}, nil},
	} {
		for _, root := range []string{"/home/w", "/home/[w]*", "/"} {
			for want, list := range map[bool][]string{true: c.matches, false: c.not} {
				for _, path := range list {
					abs := root + "/" + path
					if root == "/" {
						abs = "/" + path
					}
					if got := pathlist.Match(root, c.pattern, abs); got != want {
						t.Errorf("%s in %s and %s: %t", c.pattern, root, abs, got)
					}
				}
			}
		}
	}
	for _, c := range [][2]string{{"/etc/**/x", "/etc/a/b/x"}, {"/etc/*.d", "/etc/cron.d/y"}, {"/home/w/*.md", "/home/w/a.md"}, {"/", "/etc/x"}} {
		if !pathlist.Match("/home/w", c[0], c[1]) || pathlist.Match("/home/w", c[0], "/var/x.md") && c[0] != "/" {
			t.Errorf("%s and %s", c[0], c[1])
		}
	}
	if pathlist.Match("/home/w", "**/x", "/home/x") {
		t.Error("a relative pattern matches outside the root")
	}
}

// An escaped path is a pattern for that path alone.
func TestEscapedPathMatchesItself(t *testing.T) {
	names := []string{"a", "*", "**", "?", "[a]", `\`, `\*`, `\\`, `a\b`, "[", "]", "a*", `a\`, "*/a", "a/**/b", "**/a", "d/*"}
	for _, name := range names {
		for _, other := range names {
			if got := pathlist.Match("/w", pathlist.Escape(name), "/w/"+other); got != (other == name) && !strings.HasPrefix(other, name+"/") {
				t.Errorf("%q matches %q: %t", pathlist.Escape(name), other, got)
			}
		}
	}
}
