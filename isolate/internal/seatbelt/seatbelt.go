// Package seatbelt writes profiles for the sandbox of macOS, which sandbox-exec(1) applies to
// a program.
//
// It only produces text, so it can be tested on any system. A profile gives less isolation
// than a container on Linux: it forbids access and hides nothing. If two rules match, the last
// one decides (sandbox.h; Apple has no other documentation).
package seatbelt

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

// Policy says what a program may do in the sandbox of macOS. Paths are absolute, clean and without symbolic
// links, because the kernel compares them after it has followed all links: /tmp must be given as
// /private/tmp.
type Policy struct {
	// Write are the only trees that may be written.
	Write []string
	// ReadOnly are trees within Write that may not be written.
	ReadOnly []string
	// Hide are trees or files that can be neither read nor written. Their names remain visible in their
	// directories.
	Hide []string
	// Network allows all network access. Without it there is none, not even to the loopback.
	Network bool
}

// devices are device files to which most programs write and that store nothing, so every profile allows
// writing to them.
var devices = []string{"/dev/null", "/dev/zero", "/dev/tty", "/dev/dtracehelper"}

// Text returns the sandbox-exec(1) profile of the policy. An error names a path that a profile cannot
// contain.
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
	// Another process that acts for this one runs outside of the profile.
	b.WriteString("(deny appleevent-send)\n(deny lsopen)\n")
	b.WriteString("(deny signal)\n(allow signal (target same-sandbox))\n")
	return b.String(), nil
}

// rule writes one rule of a profile, "what" (such as allow or deny with an operation), for all paths. It
// writes nothing when paths is empty, because a rule without a filter applies to everything.
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

// quote quotes the string s in the language of macOS's sandbox profiles, in which only backslash and
// quotation mark are special.
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
