package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/spf13/cobra"
)

func newEvidencePrune(a *app) *cobra.Command {
	var keep string
	var yes bool
	cmd := &cobra.Command{
		Use:   "prune sandbox",
		Short: "remove the oldest part of a long record, under a rule",
		Long: `Lists which of the oldest records of a sandbox its rule does not keep, and removes them with
--yes. The rule is keep-evidence of the sandbox's profile, or --keep: bounds as in
records=100000,for=90d,size=500M, of which one is enough. Only whole files of the record go,
each of 64 MiB, and never the first two records or those after the end statement.

A signed statement about the removal is in the record before the first file is removed: the
numbers, the hashes of what goes, the rule, the time and the user. verify then says that the
record is complete but for these records. The site's policy can keep more, or all
(snapfs help profile, keep-evidence). After an interruption the next call finishes.`,
		Example:           "  snapfs evidence prune fix --keep for=90d\n  snapfs evidence prune fix --keep for=90d --yes",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, args []string) error {
			s := evidence.Of(e.Catalog())
			id, err := s.Find(args[0])
			if err != nil {
				return err
			}
			rule, err := keepRule(e, args[0], id, keep)
			if err != nil {
				return err
			}
			p, err := s.Prune(id, rule, yes)
			if err != nil {
				return err
			}
			return a.ui.result(p, func(io.Writer) error {
				a.ui.notice(prunedText(args[0], p))
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&keep, "keep", "", "keep what this `rule` says (default keep-evidence of the profile)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "remove the records")
	return cmd
}

// keepRule returns the retention rule for the evidence of the sandbox called name, with this id: text, the value of the
// flag --keep, or that of the sandbox's policy.
func keepRule(e *engine.Engine, name, id, text string) (catalog.KeepEvidence, error) {
	if text != "" {
		rule, err := catalog.ParseKeepEvidence(text)
		if err != nil {
			return rule, usageError(fmt.Errorf("--keep: %w", err))
		}
		return rule, nil
	}
	if rec, err := e.Catalog().Get(name); err == nil && rec.ID == id && rec.Policy.KeepEvidence != nil {
		return *rec.Policy.KeepEvidence, nil
	}
	return catalog.KeepEvidence{}, usageError(errors.New("the sandbox has no rule keep-evidence: prune requires --keep RULE, such as for=90d"))
}

// prunedText describes p, the records that a rule removes or has removed, for a person.
func prunedText(name string, p *evidence.Pruned) string {
	if p.Records == 0 {
		return "the rule " + p.Rule + " keeps every record of " + name
	}
	what := fmt.Sprintf("%s of %s, numbers %d to %d", count(int(p.Records), "record"), name, p.First, p.Last)
	if p.Removed {
		return "removed " + what
	}
	return fmt.Sprintf("to remove under the rule %s: %s, %s (--yes removes them)", p.Rule, what, units.SizeText(p.Bytes))
}
