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

// What the shell completes. Nothing is mended, made or complained about.

const noFiles = cobra.ShellCompDirectiveNoFileComp

// stateDir is the state directory, or "" where none can be told.
func (a *app) stateDir() string {
	if a.state != "" {
		return a.state
	}
	dir, _ := engine.StateDir()
	return dir
}

// records reads the sandboxes, if there is a state directory.
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

// completeSandbox completes the name of a sandbox, as the first argument.
func (a *app) completeSandbox(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return a.sandboxes(nil), noFiles
}

// completeSandboxes completes any number of names.
func (a *app) completeSandboxes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.sandboxes(args), noFiles
}

// completeThenFiles completes a sandbox, and paths after it.
func (a *app) completeThenFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.sandboxes(nil), noFiles
}

// completeState completes a sandbox, and then one of its states.
func (a *app) completeState(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.sandboxes(nil), noFiles
	case 1:
		return a.states(args[0]), noFiles
	}
	return nil, noFiles
}

// completeStates completes sandbox@state, and, as a second argument, a range.
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

// completeRefs completes what completeStates does, and, as a second argument,
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

// completeBackend completes the name of a backend.
func completeBackend(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, d := range all.Drivers() {
		names = append(names, d.Name)
	}
	return names, noFiles
}
