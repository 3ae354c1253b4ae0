package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/workflow/selftest"
	"github.com/spf13/cobra"
)

// prove runs self-tests that try to break out of a sandbox: those named in only, or all, in new sandboxes as
// req describes. It prints each result as soon as it is known.
func (a *app) prove(ctx context.Context, req hostfs.Request, only []string) error {
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	all, held, untried := 0, 0, 0
	err = selftest.New(e).Prove(ctx, req, []string{self, "probe"}, only, func(r prove.Report) {
		all++
		switch {
		case r.Held:
			held++
		case !r.WasTried():
			untried++
		}
		if a.ui.json {
			json.NewEncoder(a.ui.out).Encode(r) //nolint:errcheck // the next one fails too, and the last is looked at
			return
		}
		a.probed(r)
	})
	if err != nil {
		return err
	}
	if held < all {
		a.status = exitCannot
	}
	if a.ui.json {
		return nil
	}
	result := fmt.Sprintf("%d of %d self-tests held", held, all)
	if untried > 0 {
		result += fmt.Sprintf("; %d could not be tried", untried)
	}
	return a.ui.say(nil, result)
}

// probed prints the report of one self-test: an attempt to break out of a sandbox, and whether it failed.
func (a *app) probed(r prove.Report) {
	word := "NOT HELD"
	switch {
	case r.Held:
		word = "held"
	case !r.WasTried():
		word = "untried"
	}
	fmt.Fprintf(a.ui.out, "%-8s  %-15s  %s: %s\n", word, r.Probe, tame(r.Tried), tame(r.Happened))
}

// newProbe returns the hidden command of the process that runs one self-test, an attempt to break out, inside
// a sandbox.
func newProbe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "probe name [argument...]",
		Short:  "run one isolation self-test inside a sandbox",
		Hidden: true,
		Args:   atLeast("the probe"),
		RunE: func(_ *cobra.Command, args []string) error {
			a.status = prove.Run(args[0], args[1:], os.Stdout)
			return nil
		},
	}
}
