package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newExitCodes is a topic of help: snapfs help exit-codes.
func newExitCodes(*app) *cobra.Command {
	var b strings.Builder
	b.WriteString("What snapfs exits with:\n\n")
	for _, c := range exitCodes() {
		fmt.Fprintf(&b, "  %4d  %s\n", c.Code, c.Meaning)
	}
	b.WriteString("\n" + passedThrough)
	return &cobra.Command{Use: "exit-codes", Short: "list the exit codes", Long: b.String()}
}

const passedThrough = `run, exec and shell exit with the status of their command, and with 128 and the
signal's number for one that was killed.
diff --exit-code exits with 1 where anything changed, drift --exit-code where
anything of the real tree has, and race where no attempt has passed.`

// writeExitCodes writes the table as a page of the documents.
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
