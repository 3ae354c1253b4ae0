package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/profile"
)

func newProfileList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the profiles that have a name",
		Long: `Lists the profiles that --profile and extends find by name: those built into snapfs,
and those of the site in /etc/snapfs/profiles, which come first.`,
		Example: "  snapfs profile list\n  snapfs run --profile npm-install -- npm install",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			list, err := policy.List()
			if err != nil {
				return err
			}
			return a.ui.result(list, func(w io.Writer) error {
				t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
				for _, p := range list {
					version := ""
					if p.Version > 0 {
						version = fmt.Sprintf("version %d", p.Version)
					}
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, pathlist.Printable(p.Source), version, p.About)
				}
				return t.Flush()
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// A profileText is the JSON form of `snapfs profile show`, which prints the text of a profile.
type profileText struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func newProfileShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "show profile",
		Short:   "print the text of a profile",
		Long:    "Prints the text of a profile, to read it or to start one of your own from it.",
		Example: "  snapfs profile show npm-install\n  snapfs profile show npm-install > snapfs.toml",
		Args:    exactly("profile"),
		RunE: func(_ *cobra.Command, args []string) error {
			name, err := profileNamed(args[0])
			if err != nil {
				return err
			}
			text, err := policy.Text(name)
			if err != nil {
				return err
			}
			return a.ui.result(profileText{args[0], string(text)}, func(w io.Writer) error {
				_, err := io.WriteString(w, tame(string(text)))
				return err
			})
		},
		ValidArgsFunction: completeProfile,
	}
}

// A profileVerdict is the JSON form of `snapfs profile check`: a valid profile, its stages of promotion, and
// what its rules do not enforce.
type profileVerdict struct {
	Path    string   `json:"path"`
	Extends []string `json:"extends"`
	Stages  []string `json:"stages"`
	// NotHeld says what the rules of the profile do not hold.
	NotHeld []string `json:"not_held"`
}

func newProfileCheck(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check profile",
		Short: "check a profile and all that it extends",
		Long: `Reads a profile and all profiles that it extends, and reports every mistake with its
line, column and fix, and what its rules about programs cannot hold. It runs nothing.`,
		Example: "  snapfs profile check snapfs.toml",
		Args:    exactly("profile"),
		RunE: func(_ *cobra.Command, args []string) error {
			name, err := profileNamed(args[0])
			if err != nil {
				return err
			}
			p, err := policy.Read(name, policy.Named)
			if err != nil {
				return err
			}
			v := profileVerdict{
				Path: p.Path, Extends: append([]string{}, p.Extends...), Stages: append([]string{}, p.Names()...), NotHeld: p.Sandbox.NotHeld(hostfs.AlwaysReadable()),
			}
			return a.ui.result(v, func(w io.Writer) error {
				text := pathlist.Printable(p.Path) + ": no mistakes\n"
				for _, gap := range v.NotHeld {
					text += "not held: " + gap + "\n"
				}
				_, err := io.WriteString(w, tame(text))
				return err
			})
		},
		ValidArgsFunction: completeProfile,
	}
}

// A profileExplained is the JSON form of `snapfs profile explain`: the policy that a profile gives to a
// sandbox.
type profileExplained struct {
	// Profile is the profile that was read, or "", and Site the path of the site's policy, or "".
	Profile  string           `json:"profile"`
	Site     string           `json:"site"`
	Settings []policy.Setting `json:"settings"`
	// Ignored are the lines of a found profile that would loosen, and Tightened what the site's
	// policy changed.
	Ignored   []string `json:"ignored"`
	Tightened []string `json:"tightened"`
}

func newProfileExplain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [profile]",
		Short: "print the policy that a sandbox would have, and which line says so",
		Long: `Prints the policy that a sandbox of the workspace around the current directory would
have without flags: each setting with the file and line that says it. Without a
profile it is the one that snapfs finds by itself.`,
		Example: "  snapfs profile explain\n  snapfs profile explain agent-claude",
		Args:    atMost("profile"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				var err error
				if name, err = profileNamed(args[0]); err != nil {
					return err
				}
			}
			e, err := explainProfileNamed(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.ui.result(e, func(w io.Writer) error { return e.print(w) })
		},
		ValidArgsFunction: completeProfile,
	}
}

// explainProfileNamed returns the policy that results from the profile with this name or path. "" means the
// profile that applies without a flag in the current directory.
func explainProfileNamed(ctx context.Context, name string) (*profileExplained, error) {
	dir, err := workdir()
	if err != nil {
		return nil, err
	}
	req := hostfs.Request{Policy: catalog.Policy{Network: "none"}}
	if req.Workspace, err = hostfs.Workspace(dir); err != nil {
		return nil, err
	}
	if err := profile.Apply(ctx, &req, name, func(string) bool { return false }); err != nil {
		return nil, err
	}
	site, err := policy.ReadSite()
	if err != nil {
		return nil, err
	}
	e := &profileExplained{Ignored: []string{}, Tightened: []string{}}
	var p *policy.Profile
	if use := req.Policy.Profile; use != nil {
		trust := policy.Named
		if use.Found {
			trust = policy.Tightening
		}
		if p, err = policy.Read(use.Path, trust); err != nil {
			return nil, err
		}
		e.Profile, e.Ignored = use.Path, append(e.Ignored, use.Left...)
	}
	if site != nil {
		e.Site = site.Path
	}
	if s := req.Policy.Site; s != nil {
		e.Tightened = s.Bounded
	}
	e.Settings = policy.Explain(req.Policy, p, site)
	return e, nil
}

func (e *profileExplained) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, s := range e.Settings {
		from := "snapfs"
		if s.File != "" {
			from = fmt.Sprintf("%s:%d", pathlist.Printable(s.File), s.Line)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Setting, pathlist.Printable(s.Value), from)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range []struct {
		what string
		list []string
	}{{"ignored, since a found profile may only tighten", e.Ignored}, {"tightened by " + pathlist.Printable(e.Site), e.Tightened}} {
		if len(l.list) > 0 {
			if _, err := fmt.Fprintf(w, "%s: %s\n", l.what, printable(l.list, ", ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// profileNamed returns the argument text unchanged if it is the name of a profile, and as an absolute path if
// it is the path of one.
func profileNamed(text string) (string, error) {
	if policy.IsProfileName(text) {
		return text, nil
	}
	return absolute(text)
}

// completeProfile completes an argument to the name of a profile or of a file.
func completeProfile(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	list, _ := policy.List() // completes what it can
	var names []string
	for _, p := range list {
		if strings.HasPrefix(p.Name, filepath.Base(begun)) || begun == "" {
			names = append(names, p.Name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}
