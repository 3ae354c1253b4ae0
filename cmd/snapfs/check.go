package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// A checkDocument is the JSON form of `snapfs doctor sandbox`: the damage that was found in the sandbox's
// stored data.
type checkDocument struct {
	Sandbox string `json:"sandbox"`
	// Sound is set if no damage was found, or all of it was repaired.
	Sound bool          `json:"sound"`
	Trees []treeChecked `json:"trees"`
	// Unfinished is a killed promotion of the sandbox that waits for its target. It is no damage.
	Unfinished *reconcile.Unfinished `json:"unfinished,omitempty"`
}

type treeChecked struct {
	Path    string `json:"path"`
	Backend string `json:"backend"`
	// Checked is "records", or "all" if the backend also checks the data that they name.
	Checked  string         `json:"checked"`
	Problems []problemFound `json:"problems"`
}

type problemFound struct {
	Where  string `json:"where"`
	What   string `json:"what"`
	Mended bool   `json:"mended"`
}

// check checks the stored data of a sandbox for damage, as `snapfs doctor` does if a sandbox is named. With
// repair it repairs the damage.
func (a *app) check(cmd *cobra.Command, args []string, repair bool) error {
	if len(args) == 0 {
		return usageError(errors.New("--repair requires the name of a sandbox"))
	}
	var other string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "repair" {
			other = f.Name
		}
	})
	if other != "" {
		return usageError(fmt.Errorf("--%s does not apply to an existing sandbox", other))
	}
	e, err := a.engine(cmd.Context())
	if err != nil {
		return err
	}
	trees, err := e.Check(cmd.Context(), args[0], repair)
	if err != nil {
		return err
	}
	d := checkDocumentOf(args[0], trees)
	d.Unfinished = e.Reconcile.UnfinishedOf(args[0])
	if !d.Sound {
		a.status = exitCorrupt
	}
	return a.ui.result(d, func(w io.Writer) error { return printChecked(w, d, repair) })
}

func checkDocumentOf(name string, trees []engine.CheckedTree) *checkDocument {
	d := &checkDocument{Sandbox: name, Sound: true, Trees: []treeChecked{}}
	for _, t := range trees {
		row := treeChecked{Path: t.Path, Backend: t.Backend, Checked: "records", Problems: []problemFound{}}
		if t.Whole {
			row.Checked = "all"
		}
		for _, p := range t.Problems {
			row.Problems = append(row.Problems, problemFound(p))
		}
		d.Trees, d.Sound = append(d.Trees, row), d.Sound && t.Undamaged()
	}
	return d
}

func printChecked(w io.Writer, d *checkDocument, repair bool) error {
	for _, t := range d.Trees {
		what := "records only"
		if t.Checked == "all" {
			what = "records and data"
		}
		found := "no damage"
		if n := len(t.Problems); n > 0 {
			found = fmt.Sprintf("problems: %d", n)
		}
		fmt.Fprintf(w, "%s: %s checked %s: %s\n", tame(t.Path), t.Backend, what, found)
		for _, p := range t.Problems {
			word := "  "
			if p.Mended {
				word = "  repaired: "
			}
			fmt.Fprintf(w, "%s%s: %s\n", word, tame(p.Where), tame(p.What))
		}
	}
	if d.Unfinished != nil {
		fmt.Fprintln(w, tame(d.Unfinished.String()))
	}
	var err error
	if !d.Sound && !repair {
		_, err = fmt.Fprintf(w, "hint: snapfs doctor %s --repair\n", d.Sandbox)
	}
	return err
}
