package main

import (
	"os"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/spf13/cobra"
)

// Completions for the shell. They repair, create and print nothing.

const noFiles = cobra.ShellCompDirectiveNoFileComp

// stateDir returns the state directory for completing a command line, or "" if it cannot be determined.
func (a *app) stateDir() string {
	if a.state != "" {
		return a.state
	}
	dir, _ := engine.StateDir()
	return dir
}

// records reads the catalogue's entries of all sandboxes, for completing names. It returns none without a
// state directory.
func (a *app) records() []*catalog.Record {
	dir := a.stateDir()
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	c, err := catalog.Open(dir)
	if err != nil {
		return nil
	}
	found, _ := c.List()
	return found
}

// completeSandbox completes the first argument of a command to the name of a sandbox.
func (a *app) completeSandbox(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return a.sandboxes(nil), noFiles
}

// completeSandboxes completes each argument of a command to the name of a sandbox.
func (a *app) completeSandboxes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.sandboxes(args), noFiles
}

// completeThenFiles completes the first argument to the name of a sandbox, and further ones to paths.
func (a *app) completeThenFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.sandboxes(nil), noFiles
}

// completeState completes the first argument to the name of a sandbox, and the second to one of its named
// snapshots.
func (a *app) completeState(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.sandboxes(nil), noFiles
	case 1:
		return a.states(args[0]), noFiles
	}
	return nil, noFiles
}

// completeStates completes the first argument to a snapshot, as sandbox@snapshot, and the second, after the
// name of a sandbox, to a range of its snapshots.
func (a *app) completeStates(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if len(args) == 0 && !strings.Contains(typed, "@") {
		return a.sandboxes(nil), noFiles | cobra.ShellCompDirectiveNoSpace
	}
	var prefix, name string
	if len(args) == 1 {
		name = args[0]
	} else {
		name, typed, _ = strings.Cut(typed, "@")
		prefix = name + "@"
	}
	if from, _, found := strings.Cut(typed, ".."); found {
		prefix += from + ".."
	}
	var found []string
	for _, s := range a.states(name) {
		found = append(found, prefix+s)
	}
	return found, noFiles | cobra.ShellCompDirectiveNoSpace
}

// completeRefs completes the arguments of a comparison: as completeStates does, and the second one also to
// another sandbox or the real tree.
func (a *app) completeRefs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	found, how := a.completeStates(cmd, args, typed)
	switch {
	case len(args) != 1:
	case strings.Contains(typed, "@"):
		found, how = a.completeStates(cmd, nil, typed)
	default:
		found = append(append(found, a.sandboxes(args)...), realTree)
	}
	return found, how
}

func (a *app) sandboxes(but []string) (names []string) {
	for _, r := range a.records() {
		if !r.Ephemeral && !slices.Contains(but, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}

func (a *app) states(sandbox string) (names []string) {
	for _, r := range a.records() {
		if r.Name == sandbox {
			for _, m := range r.Snapshots {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// completeBackend completes an argument in the shell to the name of a backend, such as btrfs.
func completeBackend(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, d := range all.Drivers {
		names = append(names, d.Name)
	}
	return names, noFiles
}
