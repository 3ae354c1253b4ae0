package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go run . man --write ../../docs

// newMan returns the command that prints manual pages, made from the help texts. cobra/doc is
// not used, because its Markdown parser would cost time at every start.
func newMan(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "man [command...]",
		Short:   "print a manual page",
		Example: "  snapfs man run | man -l -\n  snapfs man pool create\n  snapfs man --write /usr/local/share",
		RunE: func(_ *cobra.Command, args []string) error {
			root := newRoot(a, nil)
			root.InitDefaultCompletionCmd()
			if dir != "" {
				return writeManuals(root, dir)
			}
			page, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], page.CommandPath())
			}
			if err != nil {
				return usageError(err)
			}
			return writeManual(a.ui.out, page)
		},
	}
	cmd.Flags().StringVar(&dir, "write", "", "write all pages and the tables of exit codes and approvals to this `directory`")
	return cmd
}

// writeManuals writes the generated documents to dir: a manual page for each command in man/man1, and
// exit-codes.md, held.md, hidden.md, profile.md and limits.md.
func writeManuals(root *cobra.Command, dir string) error {
	pages := filepath.Join(dir, "man", "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	errs := []error{writeFile(filepath.Join(dir, "exit-codes.md"), writeExitCodes), writeFile(filepath.Join(dir, "held.md"), writeHeld), writeFile(filepath.Join(dir, "hidden.md"), writeHidden), writeFile(filepath.Join(dir, "profile.md"), writeProfile), writeFile(filepath.Join(dir, "limits.md"), writeLimits)}
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if c.Hidden || c.IsAdditionalHelpTopicCommand() {
			return
		}
		errs = append(errs, writeFile(filepath.Join(pages, pageName(c)+".1"), func(w io.Writer) error { return writeManual(w, c) }))
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(root)
	return errors.Join(errs...)
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// writeManual writes the manual page of the command c, in the language of man(7).
func writeManual(w io.Writer, c *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" snapfs\n.SH NAME\n%s \\- %s\n", strings.ToUpper(roff(pageName(c))), roff(pageName(c)), roff(c.Short))
	b.WriteString(".SH SYNOPSIS\n.B " + roff(c.UseLine()) + "\n")
	text := c.Long
	if text == "" {
		text = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(text))
	b.WriteString(options("OPTIONS", c.NonInheritedFlags()) + options("GLOBAL OPTIONS", c.InheritedFlags()))
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if !sub.Hidden && !sub.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s (see \n.BR %s (1))\n", roff(sub.Name()), roff(sub.Short), roff(pageName(sub)))
			}
		}
	}
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roff(c.Example) + "\n.fi\n")
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range exitCodes() {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff(e.Meaning))
	}
	b.WriteString(".PP\n" + roff(passedThrough) + "\n")
	if c.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(c.Parent())))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func options(title string, flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n.B ")
		if f.Shorthand != "" {
			b.WriteString(roff("-" + f.Shorthand + ", "))
		}
		b.WriteString(roff("--" + f.Name))
		if name != "" {
			b.WriteString(" \\fI" + roff(name) + "\\fR")
		}
		b.WriteString("\n" + roff(usage) + "\n")
	})
	if b.Len() == 0 {
		return ""
	}
	return ".SH " + title + "\n" + b.String()
}

func paragraphs(s string) string {
	var b strings.Builder
	for _, p := range strings.Split(s, "\n\n") {
		b.WriteString(".PP\n" + roff(strings.TrimRight(p, "\n")) + "\n")
	}
	return b.String()
}

// roff escapes text for roff, the language of manual pages, so that nothing in it is an escape or a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
