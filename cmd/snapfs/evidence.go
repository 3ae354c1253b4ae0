package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/render"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"github.com/spf13/cobra"
)

func newEvidence(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "evidence",
		Short: "show what was done to a sandbox, in a form that anyone can check",
		Long: `Exports and checks the signed record of a sandbox that was made with --evidence. The record
has each command, network decision, limit, snapshot, promotion and undo, chained by
digests and signed with the key of this host. Arguments and values of variables are
stored as salted digests only. docs/evidence.md says what the record proves.`,
		Example: `  snapfs new --evidence fix
  snapfs evidence export fix -o fix.evidence
  snapfs evidence verify fix.evidence --key host.pub
  snapfs evidence reveal fix.evidence /srv/app/main.go`,
	}
	return group(cmd, newEvidenceExport(a), newEvidenceVerify(a), newEvidenceReveal(a), newEvidenceRoot(a), newEvidenceKey(a), newEvidencePrune(a),
		newEvidenceCosign(a), newEvidenceCountersign(a))
}

// An exported is the JSON form of `snapfs evidence export`, which writes the signed statements about a
// sandbox to a file. Root is the root of the Merkle tree over them; Ended is set if they are complete.
type exported struct {
	Sandbox string `json:"sandbox"`
	File    string `json:"file"`
	Root    string `json:"root"`
	Ended   bool   `json:"ended"`
}

func newEvidenceExport(a *app) *cobra.Command {
	var file, format string
	var open bool
	cmd := &cobra.Command{
		Use:   "export sandbox",
		Short: "end the record of a sandbox and write it to a file",
		Long: `Writes the record of a sandbox to one file. Before, it signs the end statement, unless the
record has one: what is done to the sandbox afterwards is recorded too, and verify names
it. With --open the record goes on, and verify says that its end is missing. The record
of a removed sandbox is exported by the same name, or by its identifier.

With --format it writes the record for other systems instead, which verify does not take:
as lines of JSON with events of OCSF 1.8.0 or of CloudEvents 1.0, one line of OTLP logs,
syslog messages (RFC 5424), or entries that systemd-journal-remote reads (journal).`,
		Example:           "  snapfs evidence export fix -o fix.evidence\n  snapfs evidence export fix --open -o before-promotion.evidence",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			if file == "" {
				return usageError(errors.New("export requires --output FILE"))
			}
			if format != "" && !slices.Contains(render.Formats(), format) {
				return usageError(errors.New("--format takes one of " + strings.Join(render.Formats(), ", ")))
			}
			r, id, err := exportEvidence(ctx, e, args[0], !open)
			if err != nil {
				return err
			}
			out := r.Text
			if format != "" {
				if out, err = a.linesOf(r.Text, format); err != nil {
					return err
				}
			}
			if err := os.WriteFile(file, out, 0o600); err != nil {
				return errs.With("writing the evidence", file, err)
			}
			return a.ui.result(exported{id, file, r.Root, !open}, func(io.Writer) error {
				a.ui.notice("wrote " + pathlist.Printable(file) + ": " + count(r.Records, "record") + ", root " + r.Root)
				return nil
			})
		}),
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this `file`")
	cmd.Flags().StringVar(&format, "format", "", "write this `format` instead: "+strings.Join(render.Formats(), ", "))
	cmd.Flags().BoolVar(&open, "open", false, "do not end the record")
	return cmd
}

// exportEvidence returns the signed evidence about a sandbox as one file (a bundle), and its identifier. With
// end it first signs the statement that the evidence is complete, if the sandbox still exists.
func exportEvidence(ctx context.Context, e *engine.Engine, name string, end bool) (*evidence.Exported, string, error) {
	s := evidence.Of(e.Catalog())
	id, err := s.Find(name)
	if err != nil {
		return nil, "", err
	}
	if rec, err := e.Catalog().Get(name); err == nil && rec.ID == id && end {
		r, err := evidence.EndAndExport(ctx, e, rec)
		return r, id, err
	}
	r, err := s.Export(id)
	return r, id, err
}

func newEvidenceVerify(a *app) *cobra.Command {
	var keyFile, earlier string
	var witnesses []string
	var least int
	var reproduce bool
	cmd := &cobra.Command{
		Use:   "verify file",
		Short: "check an exported record",
		Long: `Checks an exported record, or what reveal has printed, with a verdict for each of:

  integrity     it is as it was signed: nothing changed, missing, doubled or reordered
  signer        the key that signed it is the one of --key; without, that of this host
  completeness  it runs from the creation of the sandbox to the end statement
  policy        nothing recorded is against the sandbox's policy
  gate          the recorded checks, run again, end as recorded (only with --reproduce)

--reproduce runs the recorded checks again, each in a fork of the sandbox. It needs the host
with the sandbox, unchanged since the checks; otherwise the verdict is "not run" with the
fault no-base, and the exit status is 3. It runs nothing unless the trusted key signed the
bundle as it is.

Without --reproduce, verify needs no state directory if --key is given, and no network.
--earlier names an earlier export of the same sandbox, which the record must continue.
--witness requires that another party has cosigned the record up to its end (cosign).
The exit status is 8 if integrity does not hold, and 1 if another verdict is no.`,
		Example: "  snapfs evidence verify fix.evidence --key host.pub\n  snapfs evidence verify fix.evidence --earlier before-promotion.evidence",
		Args:    exactly("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.verifyOptions(keyFile, earlier)
			if err == nil {
				err = addWitnesses(&o, witnesses, least)
			}
			if err != nil {
				return err
			}
			text, err := readEvidence(args[0])
			if err != nil {
				return err
			}
			r := bundle.VerifyFile(text, o)
			if reproduce {
				if err := a.reproduce(cmd.Context(), text, &r); err != nil {
					return err
				}
			}
			if err := a.ui.result(r, func(w io.Writer) error { return printVerdicts(w, r) }); err != nil {
				return err
			}
			return verdictError(args[0], r)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "trust the public key in this `file` (default this host's own)")
	cmd.Flags().BoolVar(&reproduce, "reproduce", false, "run the recorded checks again, in forks of the recorded state")
	cmd.Flags().StringArrayVar(&witnesses, "witness", nil, "require a cosignature by this verifier `key`, or the one in this file; repeatable")
	cmd.Flags().IntVar(&least, "witnesses", 0, "require `N` of these cosignatures (default all)")
	cmd.Flags().StringVar(&earlier, "earlier", "", "require that the record continues that of this earlier `file`")
	return cmd
}

// reproduce runs the checks again that the evidence in text, a bundle, says were run before a promotion, and
// puts the result into the report r. It does so only if r says that the bundle is whole and signed by the
// trusted key.
func (a *app) reproduce(ctx context.Context, text []byte, r *bundle.Report) error {
	for i, v := range r.Verdicts {
		switch v.Name {
		case bundle.Integrity, bundle.Signer:
			if v.Result != "yes" {
				return nil
			}
		case bundle.Gate:
			e, err := a.engine(ctx)
			if err != nil {
				return err
			}
			if r.Verdicts[i], err = evidence.Reproduce(ctx, e, text, a.ui.err); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyOptions reads the files that the flags of `snapfs evidence verify` name: keyFile, the public key to
// trust (default: this host's own), and earlier, an older export of the same evidence.
func (a *app) verifyOptions(keyFile, earlier string) (o bundle.Options, err error) {
	if keyFile == "" {
		state, err := a.openState()
		if err != nil {
			return o, err
		}
		keyFile = filepath.Join(evidence.Dir(state), statement.PublicName)
		if _, err := os.Lstat(keyFile); errors.Is(err, fs.ErrNotExist) {
			keyFile = ""
		}
	}
	if keyFile != "" {
		if o.Key, err = statement.ReadPublic(keyFile); err != nil {
			return o, err
		}
	}
	if earlier != "" {
		o.Earlier, err = readEvidence(earlier)
	}
	return o, err
}

// maxEvidence is the largest size in bytes of a file that `snapfs evidence` reads. It does not read beyond
// that, so a larger file does not verify.
const maxEvidence = 4 << 30

// readEvidence reads exported evidence from a file, which is not trusted and may have at most maxEvidence
// bytes.
func readEvidence(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errs.With("reading the evidence", path, errors.Unwrap(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEvidence))
	return text, errs.With("reading the evidence", path, err)
}

// printVerdicts prints the result of each check that `snapfs evidence verify` has made, one a line. Where that
// would be longer than 120 characters, each clause of the reason has a line.
func printVerdicts(w io.Writer, r bundle.Report) error {
	for _, v := range r.Verdicts {
		why := v.Why
		if v.Fault != "" {
			why = v.Fault + ": " + why
		}
		line := fmt.Sprintf("%-13s %-8s %s", v.Name, v.Result, pathlist.Printable(why))
		if utf8.RuneCountInString(line) > 120 {
			line = strings.ReplaceAll(line, "; ", ";\n"+strings.Repeat(" ", 23))
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// verdictError returns an error for the first check of the report r that the evidence in file failed, or nil.
func verdictError(file string, r bundle.Report) error {
	for _, v := range r.Verdicts {
		if v.Fault == bundle.NoBase {
			return errs.New("verifying", file, errs.ErrNotFound, v.Why)
		}
		if v.Result != "no" {
			continue
		}
		e := &errs.Error{Op: "verifying", Path: file, Err: errors.New("no " + v.Name + ": " + v.Fault)}
		if v.Name == bundle.Integrity {
			e.Kind = errs.ErrCorrupt
		}
		if v.Fault == "unknown-key" {
			e.Hints = []string{"snapfs evidence key > host.pub   # on the host that signed it", "snapfs evidence verify " + errs.Quoted(file) + " --key host.pub"}
		}
		return e
	}
	return nil
}

// bundleOf returns exported evidence: from the file arg, or about the sandbox called arg.
func (a *app) bundleOf(ctx context.Context, arg string) ([]byte, error) {
	if _, err := os.Stat(arg); err == nil {
		return readEvidence(arg)
	}
	e, err := a.engine(ctx)
	if err != nil {
		return nil, err
	}
	r, _, err := exportEvidence(ctx, e, arg, false)
	if _, known := e.Catalog().Get(arg); errors.Is(err, errs.ErrNotFound) && known != nil {
		return nil, errs.New("reading the evidence", arg, errs.ErrNotFound, "no such file, and no sandbox of this name keeps or has left evidence", "snapfs ls")
	}
	if err != nil {
		return nil, err
	}
	return r.Text, nil
}

func newEvidenceReveal(a *app) *cobra.Command {
	var known bool
	cmd := &cobra.Command{
		Use:   "reveal file|sandbox path",
		Short: "print the record of one changed file, with its proof",
		Long: `Prints what is recorded of one changed file, with the proof that it belongs to the signed
record, and nothing about other files. snapfs evidence verify checks what it prints.

With --text the second argument is no path, but an argument of a command, or NAME=VALUE of
one of its variables: reveal prints each digest in the record of a sandbox that stands for
this text, and its salt. The digest is the SHA-256 of the salt and the text.`,
		Example: "  snapfs evidence reveal fix.evidence /srv/app/main.go > main.proof\n  snapfs evidence verify main.proof --key host.pub",
		Args:    exactly("file or sandbox", "path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if known {
				return a.revealText(cmd.Context(), args[0], args[1])
			}
			text, err := a.bundleOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path, err := absolute(args[1])
			if err != nil {
				return err
			}
			r, err := bundle.Reveal(text, path)
			if err != nil {
				return err
			}
			line, err := json.Marshal(r)
			if err != nil {
				return err
			}
			return a.ui.say(r, string(line))
		},
	}
	cmd.Flags().BoolVar(&known, "text", false, "show that the record has a digest of this text")
	return cmd
}

// revealText prints which salted digests in the evidence about a sandbox stand for a text, such as a
// command's argument, with their salts. By these another person can check that the evidence means this text.
func (a *app) revealText(ctx context.Context, name, text string) error {
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	found, err := evidence.Of(e.Catalog()).Reveal(name, text)
	if err != nil {
		return err
	}
	return a.ui.result(found, func(w io.Writer) error {
		for _, m := range found {
			if _, err := fmt.Fprintln(w, m.Digest, m.Salt); err != nil {
				return err
			}
		}
		return nil
	})
}

// A rootDocument is the JSON form of `snapfs evidence root`: the root of the Merkle tree over all evidence
// about a sandbox, 32 bytes that stand for it.
type rootDocument struct {
	Root string `json:"root"`
}

func newEvidenceRoot(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "root file|sandbox",
		Short:   "print the 32 bytes that a record comes down to",
		Long:    `Prints the root of the Merkle tree over the record: 32 bytes as hexadecimal digits. Of a file it checks integrity first.`,
		Example: "  snapfs evidence root fix.evidence",
		Args:    exactly("file or sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.bundleOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r := bundle.Verify(text, bundle.Options{})
			if r.Root == "" {
				return verdictError(args[0], r)
			}
			return a.ui.say(rootDocument{"0x" + r.Root}, "0x"+r.Root)
		},
	}
}

// A keyDocument is the JSON form of `snapfs evidence key`: the public key with which this host signs
// evidence, and its identifier.
type keyDocument struct {
	ID     string `json:"id"`
	Public string `json:"public"`
}

func newEvidenceKey(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "key",
		Short:   "print the public key of this host",
		Long:    `Prints the public key with which this host signs records, in PEM, and makes the key if there is none.`,
		Example: "  snapfs evidence key > host.pub",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			state, err := a.openState()
			if err != nil {
				return err
			}
			key, err := statement.HostKey(evidence.Dir(state))
			if err != nil {
				return err
			}
			var public ed25519.PublicKey = key.Public()
			text := string(statement.PublicPEM(public))
			return a.ui.result(keyDocument{statement.KeyID(public), text}, func(w io.Writer) error {
				_, err := io.WriteString(w, text)
				return err
			})
		},
	}
}
