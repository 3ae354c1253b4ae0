//go:build linux

package treetest

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/run"
)

// Feed runs a program with this input to its end, and fails the test if the program fails.
func Feed(t testing.TB, input, name string, args ...string) {
	t.Helper()
	if err := run.Run(t.Context(), run.Program{Name: name, Args: args, Stdin: strings.NewReader(input)}); err != nil {
		t.Fatal(err)
	}
}
