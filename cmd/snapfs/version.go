package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine/catalog"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := versionDocument{Version: "devel", Go: runtime.Version(), Format: catalog.Format}
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
				v.Version = info.Main.Version
			}
			return a.ui.say(v, fmt.Sprintf("snapfs %s (%s, state format %d)", v.Version, v.Go, v.Format))
		},
	}
}

type versionDocument struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Format  int    `json:"state_format"`
}
