package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/serve/watchdir"
)

// newWatchdir returns the hidden command `snapfs watchdir`. It runs in a sandbox and reports changes in a
// directory there to `snapfs serve`.
func newWatchdir(*app) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:    "watchdir directory",
		Short:  "report changes in a directory of this sandbox to snapfs serve",
		Hidden: true,
		Args:   exactly("directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			return watchdir.Serve(args[0], recursive, os.Stdout)
		},
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "also report changes in the directories in it")
	return cmd
}
