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
			v := versionDocument{Version: ownVersion(), Go: runtime.Version(), Format: catalog.Format}
			return a.ui.say(v, fmt.Sprintf("snapfs %s (%s, state format %d)", v.Version, v.Go, v.Format))
		},
	}
}

// ownVersion returns the version of this program, as `snapfs version` prints it.
func ownVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

type versionDocument struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Format  int    `json:"state_format"`
}
