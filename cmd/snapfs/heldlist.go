package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/spf13/cobra"
)

// newHeld is a topic of help: snapfs help held.
func newHeld(*app) *cobra.Command {
	var b strings.Builder
	b.WriteString(heldIntro + "\n")
	for _, p := range approval.Rules() {
		b.WriteString("\n" + p.Why + ":\n")
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
	return &cobra.Command{Use: "held", Short: "what is held back until it is allowed by name", Long: b.String()}
}

const heldIntro = `Held back until it is allowed by name, with --allow PATH: changes of what runs by
itself later, or says who may do what. A name without a slash before it may lie
at any depth, and stands for all that lies in it, too; * stands for anything
within a name. Upper and lower case are the same, but in HEAD. So is a symbolic
link held back that would lead a directory on the way to one of these elsewhere.
A change of nothing but a time is not held back.

Held back wherever they lie: files with a set-user-id or set-group-id bit
(--allow-setid), devices (--allow-devices) and files with capabilities
(--allow-capabilities).`

// writeHeld writes the list as a page of the documents.
func writeHeld(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# What is held back\n\nWritten by `make docs` from engine/approval/rules.go, like `snapfs help held`.\n\n" + heldIntro + "\n")
	for _, p := range approval.Rules() {
		names := "`" + strings.Join(p.Patterns, "` `") + "`"
		fmt.Fprintf(&b, "\n**%s%s**\n\n%s", strings.ToUpper(p.Why[:1]), p.Why[1:], wrapped("", names, 100))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
