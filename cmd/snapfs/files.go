package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/serve/files"
)

// newFiles returns the hidden command `snapfs files`. It runs in a sandbox and reads and writes files there
// for `snapfs serve`, see [files.Helper].
func newFiles(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "files",
		Short:  "serve this sandbox's files to snapfs serve",
		Hidden: true,
		Args:   exactly(),
		RunE: func(*cobra.Command, []string) error {
			root, err := files.Open("/")
			if err != nil {
				return err
			}
			defer root.Close()                             //nolint:errcheck // a descriptor of a directory
			return files.Serve(root, os.Stderr, os.Stdout) // standard input is the program, see [files.Helper]
		},
	}
}
