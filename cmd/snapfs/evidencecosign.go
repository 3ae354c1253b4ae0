package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/cosign"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"
)

func newEvidenceCosign(a *app) *cobra.Command {
	var address, key, from string
	cmd := &cobra.Command{
		Use:   "cosign sandbox",
		Short: "have another party cosign the record as it is now",
		Long: `Asks a witness on the network (C2SP tlog-witness) to cosign the record of a sandbox as it is
now, with the proof that it continues what the witness has seen. Later exports contain the
cosignature, and verify --witness requires it. So a record that was written again, or
earlier than it says, becomes visible, even if the host's key signed it.

--witness-key is the witness's verifier key (NAME+HASH+KEY), or a file with it. A witness
must know the log: with --log-key, cosign prints the verifier key of the record for it and
asks nobody. With --from it takes the cosignatures of a file that
snapfs evidence countersign has written, instead.`,
		Example: "  snapfs evidence cosign fix --log-key\n  snapfs evidence cosign fix --witness https://witness.example --witness-key witness.pub\n" +
			"  snapfs evidence cosign fix --from fix.countersigned",
		Args:              exactly("sandbox"),
		ValidArgsFunction: a.completeSandbox,
	}
	var logKey bool
	cmd.RunE = a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
		s := evidence.Of(e.Catalog())
		id, err := s.Find(args[0])
		if err != nil {
			return err
		}
		if logKey {
			host, err := s.Key()
			if err != nil {
				return err
			}
			text := statement.LogVerifier(id, host.Public())
			return a.ui.say(keyDocument{id, text}, text)
		}
		c, err := cosigned(ctx, s, id, address, key, from, a.ui.notice)
		if err != nil {
			return err
		}
		return a.ui.result(c, func(io.Writer) error {
			a.ui.notice(fmt.Sprintf("%s has cosigned %s of %s at %s", c.Witness, count(int(c.Records), "record"), args[0], c.Time.Format(time.RFC3339)))
			return nil
		})
	})
	cmd.Flags().StringVar(&address, "witness", "", "ask the witness at this `URL`")
	cmd.Flags().StringVar(&key, "witness-key", "", "accept the witness's verifier `key`, or the one in this file")
	cmd.Flags().StringVar(&from, "from", "", "take the cosignatures of this countersigned `file`")
	cmd.Flags().BoolVar(&logKey, "log-key", false, "print the verifier key of the record, for a witness")
	return cmd
}

// cosigned stores a cosignature of the evidence of the sandbox with this id: that of the witness at address with this
// key, or those in the file from.
func cosigned(ctx context.Context, s *evidence.Store, id, address, key, from string, notice func(string)) (*evidence.Cosigned, error) {
	if from != "" {
		text, err := readEvidence(from)
		if err != nil {
			return nil, err
		}
		return s.AddCosigned(id, text)
	}
	if address == "" || key == "" {
		return nil, usageError(errors.New("cosign requires --witness URL and --witness-key KEY, or --from FILE"))
	}
	w, err := statement.ReadWitness(key)
	if err != nil {
		return nil, err
	}
	return s.Cosign(id, w, func(old int64, proof tlog.TreeProof, checkpoint []byte) ([]string, int64, error) {
		answer, err := askWitness(ctx, address, old, proof, checkpoint, notice)
		if err != nil {
			return nil, -1, err
		}
		return answer.Lines(address)
	})
}

// askWitness has the program snapfs-serve ask the witness at address to cosign a checkpoint.
func askWitness(ctx context.Context, address string, old int64, proof tlog.TreeProof, checkpoint []byte, notice func(string)) (answer cosign.Answer, err error) {
	q, err := cosign.RequestOf(address, old, proof, checkpoint)
	if err != nil {
		return answer, err
	}
	text, err := exactjson.Encode(q)
	if err != nil {
		return answer, err
	}
	program, err := run.Beside("snapfs-serve", notice)
	if err != nil {
		return answer, errs.With("asking a witness", address, err)
	}
	out, err := run.Output(ctx, program[0], "witness", string(text))
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	return answer, errs.With("asking a witness", address, err)
}

// A countersignedDocument is the JSON form of `snapfs evidence countersign`: the file, and the verifier key whose owner
// has cosigned it.
type countersignedDocument struct {
	File    string `json:"file"`
	Witness string `json:"witness"`
}

func newEvidenceCountersign(a *app) *cobra.Command {
	var keyFile, file string
	cmd := &cobra.Command{
		Use:   "countersign file",
		Short: "cosign an exported record, as the other party",
		Long: `Verifies the integrity of an exported record, and writes it with a cosignature: its holder
has seen the record as it is. The operator adds the cosignature to his own with
snapfs evidence cosign --from, and verify --witness requires it. Both parties do this
at the start and at the end of a job, so that neither can replace what is between.

It signs with the key of this host (snapfs evidence key prints the public one), or with the
private Ed25519 key of --key, in PEM. It needs no network.`,
		Example: "  snapfs evidence countersign fix.evidence -o fix.countersigned",
		Args:    exactly("file"),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return usageError(errors.New("countersign requires --output FILE"))
			}
			if keyFile == "" {
				state, err := a.openState()
				if err != nil {
					return err
				}
				if _, err := statement.HostKey(evidence.Dir(state)); err != nil { // makes it
					return err
				}
				keyFile = filepath.Join(evidence.Dir(state), statement.KeyName)
			}
			key, err := statement.ReadPrivate(keyFile)
			if err != nil {
				return err
			}
			text, err := readEvidence(args[0])
			if err != nil {
				return err
			}
			out, err := bundle.Countersign(text, key, time.Now())
			if err != nil {
				return errs.New("countersigning", args[0], errs.ErrCorrupt, err.Error())
			}
			if err := os.WriteFile(file, out, 0o600); err != nil {
				return errs.With("writing the evidence", file, err)
			}
			w := statement.NewWitness(key.Public()).String()
			return a.ui.say(countersignedDocument{file, w}, w)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "sign with the private key in this `file` (default this host's own)")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this `file`")
	return cmd
}

// addWitnesses puts the witnesses that the flags of `snapfs evidence verify` name into o: keys, of which at least least
// must have cosigned the evidence, or all with 0.
func addWitnesses(o *bundle.Options, keys []string, least int) error {
	if least < 0 || least > len(keys) {
		return usageError(fmt.Errorf("--witnesses requires a number from 1 to %d, that of the flags --witness", len(keys)))
	}
	for _, key := range keys {
		w, err := statement.ReadWitness(key)
		if err != nil {
			return err
		}
		o.Witnesses = append(o.Witnesses, w)
	}
	o.Least = least
	return nil
}
