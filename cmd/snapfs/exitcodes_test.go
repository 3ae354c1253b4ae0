package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The text and the rows of the table of exit statuses list each command that exits with the status of another one.
func TestExitCodesListTheCommandsThatPassAStatusThrough(t *testing.T) {
	var want []string
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if _, passes := cmd.Annotations[passesStatus]; passes {
			want = append(want, strings.TrimPrefix(cmd.CommandPath(), "snapfs "))
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&app{ui: &ui{}}, nil))
	slices.Sort(want)
	if !slices.Contains(want, "run") {
		t.Fatalf("the commands with the annotation %s are %q", passesStatus, want)
	}
	text, _, _ := strings.Cut(passedThrough, " exit with ")
	lists := map[string]string{"the text": strings.ReplaceAll(text, " and ", ", ")}
	for _, c := range exitCodes() {
		if c.Code >= exitLimit && c.Code <= exitNoCommand {
			lists[c.Meaning], _, _ = strings.Cut(c.Meaning, ": ")
		}
	}
	for where, list := range lists {
		names := strings.Split(list, ", ")
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s: it lists %q, want %q", where, names, want)
		}
	}
}
