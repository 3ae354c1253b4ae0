package main

import (
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/spf13/cobra"
)

// newHelp returns the help command. It replaces cobra's, which prints help and succeeds for an unknown
// command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "explain a command",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range commands() {
				if c.group != "" {
					names = append(names, c.name)
				}
			}
			return names, noFiles
		},
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], about.CommandPath())
			}
			if err != nil {
				path, _ := strings.CutPrefix(about.CommandPath(), root.Name())
				return &errs.Error{Kind: errUsage, Err: err, Hints: similar(about, root.Name()+" help"+path, rest[0])}
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// tameCompletion changes the texts of cobra's completion command to this program's style, and makes an
// unknown shell an error.
func tameCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return
	}
	cmd.Short = "print the completions for a shell"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
	cmd.Args = cobra.ArbitraryArgs
	for _, shell := range cmd.Commands() {
		shell.Short = "print the completions for " + shell.Name()
	}
}
