package bundle

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"golang.org/x/mod/sumdb/tlog"
)

// revealFormat names the format of a [Revealed], the JSON text that proves that one changed file is in an
// evidence bundle.
const revealFormat = "https://github.com/snapfs/snapfs/evidence/reveal/v1"

// A Revealed is the entry of one changed file in an evidence bundle, with the proof that it is in the
// manifest (list of changed files), that the manifest is in the log, and that the log was signed. It contains
// only hashes of the other files, so it can be given to people who must not see these.
type Revealed struct {
	Format string `json:"format"`
	// Entry is the line of the file in the manifest, which has Entries lines.
	Entry      string   `json:"entry"`
	Index      int64    `json:"index"`
	Entries    int64    `json:"entries"`
	EntryProof []string `json:"entry_proof"`
	// Record is the record of the manifest.
	Record      string   `json:"record"`
	RecordProof []string `json:"record_proof"`
	Checkpoint  string   `json:"checkpoint"`
	Key         string   `json:"key"`
}

// An entry is the path in a line of a manifest, the list of a sandbox's changed files. [Reveal] finds a
// file's line by it.
type entry struct {
	Path string `json:"path"`
}

// Reveal returns the last entry about the changed file path in bundleText, an evidence bundle, with the proof
// that it belongs there. It checks the bundle's integrity first.
func Reveal(bundleText []byte, path string) (Revealed, error) {
	c, f := check(bundleText)
	if f != nil {
		return Revealed{}, errs.New("revealing", path, errs.ErrCorrupt, f.why)
	}
	roots := c.roots()
	for m := len(c.Manifests) - 1; m >= 0; m-- {
		for i, line := range c.Manifests[m] {
			var e entry
			if json.Unmarshal(line, &e) == nil && e.Path == path {
				return c.reveal(m, int64(i), roots[m])
			}
		}
	}
	return Revealed{}, errs.New("revealing", path, errs.ErrNotFound, "no recorded manifest has this path")
}

func (c *checked) reveal(m int, i int64, root string) (r Revealed, err error) {
	tree, err := audit.TreeOf(c.Manifests[m])
	if err != nil {
		return r, err
	}
	inManifest, err := tree.Proof(i)
	if err != nil {
		return r, err
	}
	at := 0
	for c.records[at].Type != audit.DiffRecorded || text(c.records[at].Data, "root") != root {
		at++ // one has it: roots found it there
	}
	inLog, err := c.tree.Proof(c.records[at].Seq)
	return Revealed{
		Format: revealFormat, Entry: string(c.Manifests[m][i]), Index: i, Entries: tree.Size(), EntryProof: encodeProof(inManifest),
		Record: string(c.Records[at]), RecordProof: encodeProof(inLog), Checkpoint: string(c.Checkpoint), Key: base64.StdEncoding.EncodeToString(c.Key),
	}, err
}

func encodeProof(p tlog.RecordProof) []string {
	all := []string{}
	for _, h := range p {
		all = append(all, base64.StdEncoding.EncodeToString(h[:]))
	}
	return all
}

func decodeProof(all []string) (p tlog.RecordProof, err error) {
	for _, text := range all {
		h, err := tlog.ParseHash(text)
		if err != nil {
			return nil, err
		}
		p = append(p, h)
	}
	return p, nil
}

// Check returns an error unless the proofs of the revealed file are right and the checkpoint (signed state of
// the evidence log) is signed by its key. Whether the key is trusted is for the caller to check.
func (r *Revealed) Check() error {
	var record audit.Record
	key, err := base64.StdEncoding.Strict().DecodeString(r.Key)
	if err != nil || len(key) != 32 || r.Format != revealFormat || json.Unmarshal([]byte(r.Record), &record) != nil {
		return errors.New("it is no revealed entry")
	}
	if record.Type != audit.DiffRecorded {
		return errors.New("its record is not that of a manifest")
	}
	point, err := statement.OpenCheckpoint([]byte(r.Checkpoint), record.Sandbox, key)
	if err != nil {
		return err
	}
	inLog, err := decodeProof(r.RecordProof)
	if err == nil {
		err = tlog.CheckRecord(inLog, point.Size, point.Root, record.Seq, tlog.RecordHash([]byte(r.Record)))
	}
	if err != nil {
		return fmt.Errorf("the record of the manifest is not in the log: %w", err)
	}
	inManifest, err := decodeProof(r.EntryProof)
	if err != nil {
		return err
	}
	root, err := rootOf(text(record.Data, "root"))
	if err == nil {
		err = tlog.CheckRecord(inManifest, r.Entries, root, r.Index, tlog.RecordHash([]byte(r.Entry)))
	}
	if err != nil {
		return fmt.Errorf("the entry is not in the manifest: %w", err)
	}
	return nil
}

// rootOf parses the root hash of an evidence log's Merkle tree, given in hexadecimal digits.
func rootOf(digits string) (root tlog.Hash, err error) {
	var b []byte
	if n, serr := fmt.Sscanf(digits, "%x", &b); serr != nil || n != 1 || len(b) != len(root) {
		return root, errors.New("it is no root")
	}
	copy(root[:], b)
	return root, nil
}

// VerifyFile returns the verdicts on text, which is an evidence bundle or the JSON form of a [Revealed].
func VerifyFile(text []byte, o Options) Report {
	var r Revealed
	if json.Unmarshal(text, &r) != nil || r.Format != revealFormat {
		return Verify(text, o)
	}
	var f *fault
	if err := r.Check(); err != nil {
		f = faultf("proof", "%v", err)
	}
	var key ed25519.PublicKey
	key, _ = base64.StdEncoding.DecodeString(r.Key) // Check has decoded it
	report := Report{Verdicts: []Verdict{f.verdict(Integrity, "the entry is in the manifest, and the manifest in the signed log")}}
	if f == nil {
		c := &checked{Bundle: &Bundle{Key: key}}
		report.Key = statement.KeyID(key)
		report.Verdicts = append(report.Verdicts, c.signer(o.Key).verdict(Signer, "signed by the key that you trust"))
	} else {
		report.Verdicts = append(report.Verdicts, Verdict{Signer, "not run", "", "the proof does not hold"})
	}
	for _, name := range []string{Completeness, Policy, Gate} {
		report.Verdicts = append(report.Verdicts, Verdict{name, "not run", "", "this is one entry, not the whole record"})
	}
	return report
}
