package main

import (
	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/network/edge"
)

// newEdge is the process at the edge of a sandbox's network. Its keeper starts it.
func newEdge(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "edge",
		Short:  "hold a sandbox's network to its rules",
		Hidden: true,
		Args:   exactly(),
		RunE:   func(cmd *cobra.Command, _ []string) error { return edge.Serve(cmd.Context()) },
	}
}
