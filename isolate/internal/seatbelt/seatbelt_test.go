package seatbelt

import (
	"strings"
	"testing"
)

func TestProfileAllowsOnlyNamedPaths(t *testing.T) {
	p := Policy{
		Write:    []string{"/private/var/fork", `/Users/a "b"\c`},
		ReadOnly: []string{"/private/var/fork/.git/hooks"},
		Hide:     []string{"/Users/ada/.ssh"},
	}
	const want = `(version 1)
(allow default)
(deny file-write*)
(allow file-write*
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/dtracehelper"))
(allow file-write* (regex #"^/dev/ttys[0-9]+$"))
(allow file-write*
  (subpath "/private/var/fork")
  (subpath "/Users/a \"b\"\\c"))
(deny file-write*
  (subpath "/private/var/fork/.git/hooks"))
(deny file-read* file-write*
  (subpath "/Users/ada/.ssh"))
(deny network*)
(deny appleevent-send)
(deny lsopen)
(deny signal)
(allow signal (target same-sandbox))
`
	if got, err := p.Text(); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// A rule without a filter applies to all paths: an empty list must write no rule.
func TestEmptyListWritesNoRule(t *testing.T) {
	got, err := Policy{Network: true}.Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"file-read*", "network", "(allow file-write*)", "(deny file-write*\n"} {
		if strings.Contains(got, not) {
			t.Errorf("%q in a profile of an empty policy:\n%s", not, got)
		}
	}
	if !strings.Contains(got, "\n(deny file-write*)\n") {
		t.Errorf("an empty policy lets everything be written:\n%s", got)
	}
}

// A name must not end a string early, nor contain characters that a string cannot hold.
func TestPathsAreQuotedInProfiles(t *testing.T) {
	got, err := Policy{Write: []string{`/a")) (allow default) ((`}}.Text()
	if err != nil || !strings.Contains(got, `(subpath "/a\")) (allow default) ((")`) {
		t.Errorf("%v\n%s", err, got)
	}
	for _, bad := range []string{"relative", "/a/../b", "/a\nb", "", "/a\x00b"} {
		for _, p := range []Policy{{Write: []string{bad}}, {ReadOnly: []string{bad}}, {Hide: []string{bad}}} {
			if got, err := p.Text(); err == nil {
				t.Errorf("%q was taken:\n%s", bad, got)
			}
		}
	}
}
