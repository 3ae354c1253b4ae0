package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/spf13/cobra"
)

// newHeld returns the help topic held, the list of changes that are not promoted without approval.
func newHeld(*app) *cobra.Command {
	var b strings.Builder
	b.WriteString(heldIntro() + "\n")
	for _, p := range approval.Rules() {
		b.WriteString("\n" + p.Why + placeOf(p) + ":\n")
		line := " "
		for _, pattern := range p.Patterns {
			if len(line)+len(pattern) > 78 {
				b.WriteString(line + "\n")
				line = " "
			}
			line += " " + pattern
		}
		b.WriteString(line + "\n")
	}
	return &cobra.Command{Use: "held", Short: "list the changes that need approval", Long: b.String()}
}

// heldIntro returns the text before the list of changes that are not promoted without approval.
func heldIntro() string {
	return `Changes to these files need approval by name, with --allow PATH: files that run
by themselves later, or that decide who may do what. Without approval apply,
promote, race and stages change nothing, and print the command that approves
all. PATH may be a pattern as in a gitignore file: --allow '**/.envrc'. A backslash
before a wildcard makes it a part of the name. The printed command has --plan, where
that is possible: what the sandbox changes afterwards is refused, with a new list.

In the list, a pattern without a leading slash matches at any depth, and
everything in a directory that it matches; * matches anything within a name.
Case does not matter, except in HEAD. A symbolic link that would redirect a
directory above one of these needs approval too. A change of only a time needs
none.

What a tool reads at the top of a project only, such as the settings of a build
server, needs no approval in the directories of installed packages:
` + strings.TrimRight(wrapped("", strings.ReplaceAll(strings.Join(approval.PackageDirs, ", "), strings.Repeat("[0-9a-f]", 16), "HASH"), 80), "\n") + `
A directory of such a name inside of what the list names, such as
.vim/pack/vendor, needs approval with it.

A virtual environment of Python that is new as a whole is a result like any other.
In one that was there, and is in use, its programs and what runs whenever it is
used need approval: those of "pip install" into it, too. A directory that was an
environment or a git repository is judged as one, also if the sandbox has made it
something else; what makes it a repository cannot go or come without approval.

The database of installed packages is one group: --allow /var/lib/dpkg approves
the list of packages together with their scripts.

These need approval whatever their names are:
` + kindsList() + `
A link inside the workspace to something else there needs none. snapfs reads in
byte code how Python checks it; byte code that was forged with the time and size of
its source it cannot recognise. Byte code that is a link needs approval.

Not recognised is what such a place leads to already: a script to which a git hook in
the real tree is a link, what lies in a directory of core.hooksPath, or a file that
git's settings name by include.path. Nor is a file that a project's own programs run,
such as a Makefile. Read their changes yourself.`
}

// kindsList returns a line for each kind of change that needs approval whatever the file's name is, such as
// set-user-id files.
func kindsList() string {
	var b strings.Builder
	for _, k := range approval.Kinds() {
		b.WriteString("- " + strings.TrimSuffix(k.Why, ": "))
		if k.Flag != "" {
			b.WriteString(" (" + k.Flag + ")")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// placeOf returns a text that says in which directories an approval rule does not apply, or "".
func placeOf(r approval.Rule) string {
	switch r.Place {
	case approval.OutsidePackages:
		return " (not in installed packages)"
	case approval.OutsideNewEnvironments:
		return " (not in a new environment)"
	}
	return ""
}

// writeHeld writes docs/held.md, the list of changes that are not promoted without approval.
func writeHeld(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# What needs approval\n\nWritten by `make docs` from engine/approval/rules.go, like `snapfs help held`.\n\n" + heldIntro() + "\n")
	for _, p := range approval.Rules() {
		names := "`" + strings.Join(p.Patterns, "` `") + "`"
		fmt.Fprintf(&b, "\n**%s%s**%s\n\n%s", strings.ToUpper(p.Why[:1]), p.Why[1:], placeOf(p), wrapped("", names, 100))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
