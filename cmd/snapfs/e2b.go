package main

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/local"
)

// newE2B returns the hidden command that serves E2B's wire alone, as snapfs serve --e2b does beside its own.
func newE2B(a *app) *cobra.Command {
	var flags requestFlags
	var c serve.E2BConfig
	var templates []string
	cmd := &cobra.Command{
		Use:    "e2b [flags]",
		Short:  "serve the clients of E2B",
		Hidden: true,
		Args:   exactly(),
		RunE: func(*cobra.Command, []string) error {
			if err := local.CheckOutside(); err != nil {
				return err
			}
			var err error
			if c.Rules, err = a.agentRules(&flags); err != nil {
				return err
			}
			if c.Templates, err = templateFlags(templates); err != nil {
				return err
			}
			if c.KeyFile != "" {
				if c.KeyFile, err = absolute(c.KeyFile); err != nil {
					return err
				}
			}
			text, err := json.Marshal(c)
			if err != nil {
				return err
			}
			program, err := run.Beside("snapfs-serve", a.ui.notice)
			if err != nil {
				return errs.With("serving", "", err)
			}
			return run.Replace(program[0], "e2b", string(text))
		},
	}
	flags.add(cmd)
	flags.addProve(cmd)
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:0", "listen on this `address`")
	f.StringVar(&c.KeyFile, "e2b-key", "", "require the API key in this `file`")
	f.StringArrayVar(&c.Hosts, "host", nil, "answer also for this host `name` and its subdomains")
	f.StringArrayVar(&templates, "template", nil, "offer a profile as a template, as `NAME=FILE`")
	f.DurationVar(&c.MaxTimeout, "max-timeout", 24*time.Hour, "allow time-outs up to this `duration`")
	return cmd
}

// templateFlags returns the profiles of --template by name.
func templateFlags(list []string) (map[string]string, error) {
	templates := map[string]string{}
	for _, text := range list {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" || name == "base" {
			return nil, usageError(errors.New("--template takes NAME=FILE, and the name base is taken"))
		}
		path, err := absolute(file)
		if err != nil {
			return nil, err
		}
		templates[name] = path
	}
	return templates, nil
}
