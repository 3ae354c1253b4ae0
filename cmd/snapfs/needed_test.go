package main

import (
	"strings"
	"testing"
)

// Constructing all commands takes a millisecond. A start constructs the command that it runs, also after flags of
// snapfs itself, and all of them where the command line names none.
func TestAStartConstructsTheNamedCommandAlone(t *testing.T) {
	all := len(commands())
	for line, want := range map[string]string{
		"run -- true":              "run",
		"--state /tmp/s run true":  "run",
		"--state=/tmp/s promote x": "promote",
		"--json ls":                "ls",
		"--state run":              "", // the state directory is called run
		"-- run":                   "",
		"help run":                 "",
		"__complete run":           "",
		"--help":                   "",
		"":                         "",
	} {
		got := needed(strings.Fields(line))
		if want == "" && len(got) != all {
			t.Errorf("snapfs %s constructs %d commands, want all %d", line, len(got), all)
		}
		if want != "" && (len(got) != 1 || got[0].name != want) {
			t.Errorf("snapfs %s constructs %d commands, want %s alone", line, len(got), want)
		}
	}
}
