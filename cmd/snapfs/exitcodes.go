package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newExitCodes returns the help topic exit-codes, the table of exit statuses.
func newExitCodes(*app) *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes of snapfs:\n\n")
	for _, c := range exitCodes() {
		fmt.Fprintf(&b, "  %4d  %s\n", c.Code, c.Meaning)
	}
	b.WriteString("\n" + passedThrough)
	return &cobra.Command{Use: "exit-codes", Short: "list the exit codes", Long: b.String()}
}

const passedThrough = `run, exec, shell, learn and agent run exit with the status of their command, or with 128
plus the signal's number if a signal killed it. diff --exit-code and drift --exit-code exit
with 1 if anything changed, race if no attempt passed, and profile diff if something that
was used is not allowed. ready and doctor exit with 7 if the host is not ready.`

// writeExitCodes writes docs/exit-codes.md, the page with the table of snapfs's exit statuses, to w.
func writeExitCodes(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Exit codes\n\nWritten by `make docs` from cmd/snapfs/exit.go, like `snapfs help exit-codes` and the manual pages.\n\n| status | means |\n| --- | --- |\n")
	for _, c := range exitCodes() {
		fmt.Fprintf(&b, "| %d | %s |\n", c.Code, c.Meaning)
	}
	b.WriteString("\n" + passedThrough + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}
