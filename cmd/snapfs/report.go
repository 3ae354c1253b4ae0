package main

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/render"
	"github.com/spf13/cobra"
)

// A reportDocument is the JSON form of `snapfs report`, which writes the evidence about a sandbox as an HTML
// page: the page's file, and whether each check of the evidence held.
type reportDocument struct {
	File     string           `json:"file"`
	Verdicts []bundle.Verdict `json:"verdicts"`
}

func newReport(a *app) *cobra.Command {
	var file, keyFile string
	cmd := &cobra.Command{
		Use:   "report sandbox|file",
		Short: "write the record of a sandbox as an HTML page",
		Long: `Writes one HTML page about a sandbox that was made with --evidence, or about an exported
record: who created the sandbox and with which policy, which commands ran, and which files
were changed; the refusals, checks and promotions, and who promoted. The verdicts of
"snapfs evidence verify" are at its top. The page loads nothing, runs no script, and shows
no argument and no value of a variable.`,
		Example:           "  snapfs report fix -o fix.html\n  snapfs report fix.evidence --key host.pub -o fix.html",
		Args:              exactly("sandbox or file"),
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return usageError(errors.New("report requires --output FILE (- for standard output)"))
			}
			text, err := a.bundleOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := a.recordOf(text, keyFile)
			if err != nil {
				return errs.With("writing a report on "+args[0], "", err)
			}
			page := render.Page(r)
			if file == "-" {
				_, err := a.ui.out.Write(page)
				return err
			}
			if err := os.WriteFile(file, page, 0o600); err != nil {
				return errs.With("writing the report", file, err)
			}
			return a.ui.result(reportDocument{file, r.Report.Verdicts}, func(io.Writer) error {
				a.ui.notice("wrote " + pathlist.Printable(file))
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write the page to this `file`; - is standard output")
	cmd.Flags().StringVar(&keyFile, "key", "", "trust the public key in this `file` (default this host's own)")
	return cmd
}

// recordOf verifies text, the exported evidence about a sandbox, and returns it for display. Evidence that
// was changed since it was signed is an error, so that nobody sees it. keyFile is the public key to trust, ""
// for this host's own.
func (a *app) recordOf(text []byte, keyFile string) (*render.Record, error) {
	o, err := a.verifyOptions(keyFile, "")
	if err != nil {
		return nil, err
	}
	report := bundle.Verify(text, o)
	if report.Root == "" {
		return nil, verdictError("", report)
	}
	return render.Read(text, report)
}

// linesOf verifies text, the exported evidence about a sandbox, and returns its entries as events in an
// exchange format, one a line. format is one of the names of [render.Formats], such as that of OCSF or
// CloudEvents.
func (a *app) linesOf(text []byte, format string) ([]byte, error) {
	r, err := a.recordOf(text, "")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = render.Lines(&out, r, format)
	return out.Bytes(), err
}
