package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/workflow/pipeline"
	"github.com/spf13/cobra"
)

// A trustDocument is the JSON form of `snapfs profile trust`, by which a person permits a profile to run
// commands on the real machine.
type trustDocument struct {
	Path string               `json:"path"`
	Runs []policy.HostCommand `json:"runs"`
}

func newProfileTrust(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "trust [file]",
		Short: "let a found profile run commands on this machine",
		Long: `Prints what the stages of a profile run on this machine, as you, outside any sandbox
(deploy, rollback and after), and records that you trust it. Without a file it is the
snapfs.toml of the workspace around the current directory.

Until then "snapfs promote --to" runs nothing of a profile that has such commands and
that it found itself; at a terminal it asks. The record is for this file with this
content: after an edit, trust it again. The scripts that the commands start are not
part of the content. A profile that you name with --profile needs no record.`,
		Example: "  snapfs profile trust\n  snapfs profile trust ~/project/snapfs.toml",
		Args:    atMost("file"),
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, args []string) error {
			p, err := profileToTrust(args)
			if err != nil {
				return err
			}
			runs := policy.OnHost(p.Stages)
			if len(runs) > 0 {
				if err := pipeline.New(e).Trust(p); err != nil {
					return err
				}
			}
			return a.ui.result(trustDocument{p.Path, runs}, func(w io.Writer) error {
				_, err := io.WriteString(w, tame(runsOnHost(p.Path, runs)))
				return err
			})
		}),
	}
}

// profileToTrust reads the profile at the path args[0], or without arguments that of the workspace of the
// current directory.
func profileToTrust(args []string) (*policy.Profile, error) {
	if len(args) > 0 {
		path, err := absolute(args[0])
		if err != nil {
			return nil, err
		}
		return pipeline.Profile(filepath.Dir(path), path)
	}
	dir, err := workdir()
	if err != nil {
		return nil, err
	}
	workspace, err := hostfs.Workspace(dir)
	if err != nil {
		return nil, err
	}
	return pipeline.Profile(workspace, "")
}

// runsOnHost returns a text that lists the commands that the profile at path runs on the real machine.
func runsOnHost(path string, runs []policy.HostCommand) string {
	if len(runs) == 0 {
		return pathlist.Printable(path) + " runs nothing on this machine: there is nothing to trust\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s runs on this machine:\n", pathlist.Printable(path))
	for _, r := range runs {
		text := strings.ReplaceAll(strings.TrimSpace(r.Run), "\n", "\n      ")
		fmt.Fprintf(&b, "  %s, %s: %s\n", r.Stage, r.When, text)
	}
	return b.String()
}

// trusts prints the commands that a profile, which snapfs has found in a workspace, would run on the real
// machine. It reports whether a person trusts them.
func (a *app) trusts(p *policy.Profile, runs []policy.HostCommand) bool {
	if _, err := io.WriteString(a.ui.err, tame(runsOnHost(p.Path, runs))); err != nil {
		return false
	}
	return a.ui.ask("trust this content of the profile? [y/n]",
		answer{"yes", "record that and promote"},
		answer{"no", "do nothing"}) == "yes"
}
