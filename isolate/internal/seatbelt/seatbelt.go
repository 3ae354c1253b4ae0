// Package seatbelt writes profiles for the sandbox of macOS, which sandbox-exec(1)
// puts a program under.
//
// It is text in, text out, so that it can be read and tested anywhere. What such a
// profile can hold is less than a box of Linux: it forbids, and hides nothing. Where
// two rules match, the last one counts (sandbox.h; Apple documents no more of it).
package seatbelt

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

// A Policy is what a profile is to hold. Paths are absolute, clean and real: the
// kernel compares them after it has followed all links, so that /tmp is /private/tmp.
type Policy struct {
	// Write are the trees that may be written, with all beneath; no other may.
	Write []string
	// ReadOnly are trees within Write that may not.
	ReadOnly []string
	// Hide are trees, or files, that can be neither read nor written. Their names
	// still show in the directories that hold them.
	Hide []string
	// Network: any network, that of this machine. Without it none, not even the loopback.
	Network bool
}

// devices are written to by every other program, and keep nothing.
var devices = []string{"/dev/null", "/dev/zero", "/dev/tty", "/dev/dtracehelper"}

// Text is the profile. An error names a path that cannot stand in one.
func (p Policy) Text() (string, error) {
	for _, list := range [][]string{p.Write, p.ReadOnly, p.Hide} {
		for _, name := range list {
			if err := check(name); err != nil {
				return "", err
			}
		}
	}
	var b strings.Builder
	b.WriteString("(version 1)\n(allow default)\n")
	b.WriteString("(deny file-write*)\n")
	rule(&b, "allow file-write*", "literal", devices)
	b.WriteString("(allow file-write* (regex #\"^/dev/ttys[0-9]+$\"))\n")
	rule(&b, "allow file-write*", "subpath", p.Write)
	rule(&b, "deny file-write*", "subpath", p.ReadOnly)
	rule(&b, "deny file-read* file-write*", "subpath", p.Hide)
	if !p.Network {
		b.WriteString("(deny network*)\n")
	}
	// What another process does for the asker is done outside of the profile.
	b.WriteString("(deny appleevent-send)\n(deny lsopen)\n")
	b.WriteString("(deny signal)\n(allow signal (target same-sandbox))\n")
	return b.String(), nil
}

// rule writes one rule for all paths; none where there are none, for a rule
// without a filter is about everything.
func rule(b *strings.Builder, what, filter string, paths []string) {
	if len(paths) == 0 {
		return
	}
	b.WriteString("(" + what)
	for _, p := range paths {
		fmt.Fprintf(b, "\n  (%s %s)", filter, quote(p))
	}
	b.WriteString(")\n")
}

// quote makes a string of the profile's language: only the two are special in it.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func check(name string) error {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name:
		return fmt.Errorf("path %q is not absolute and clean", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("path %q holds a control character, which a profile of macOS cannot name", name)
	}
	return nil
}
