package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/internal/wsl"
)

// snapfs.exe translates the values of flags that name files, and leaves other values as they
// are: it has to know both kinds.
func TestSnapfsExeKnowsTheFlagsThatHaveAValue(t *testing.T) {
	var files, others []string
	add := func(f *pflag.Flag) {
		if f.NoOptDefVal != "" {
			return // a value is part of the same argument
		}
		list := &others
		if kind, _ := pflag.UnquoteUsage(f); kind == "file" || kind == "directory" || kind == "path" {
			list = &files
		}
		*list = append(*list, "--"+f.Name)
		if f.Shorthand != "" {
			*list = append(*list, "-"+f.Shorthand)
		}
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(add)
		cmd.PersistentFlags().VisitAll(add)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&app{ui: &ui{}}, nil))
	// Some name a file in one command and something else in another: there are no strokes in that.
	others = slices.DeleteFunc(others, func(name string) bool { return slices.Contains(files, name) })
	for _, c := range []struct {
		kind        string
		have, known []string
	}{{"a file", files, wsl.PathFlags}, {"something else", others, wsl.ValueFlags}} {
		slices.Sort(c.have)
		if have := slices.Compact(c.have); !slices.Equal(have, c.known) {
			t.Errorf("flags that name %s:\n%q\nknown to snapfs.exe:\n%q", c.kind, have, c.known)
		}
	}
}
