package bundle

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// Format names the file format of a bundle, the evidence of one sandbox. It is in the first line of each
// bundle.
const Format = "https://github.com/snapfs/snapfs/evidence/bundle/v1"

// A Bundle is the complete evidence of one sandbox, as one file contains it. Lines are without their line
// breaks.
type Bundle struct {
	Sandbox string
	Key     ed25519.PublicKey
	// Records are the lines of the log.
	Records [][]byte
	// Manifests are the manifests that records of type [audit.DiffRecorded] name, in their order. An
	// element is a list of entries, each a line.
	Manifests [][][]byte
	// Statements are the envelopes of the start, and of the end if there is one.
	Statements [][]byte
	// Checkpoint is a signed note.
	Checkpoint []byte
	// Cosigned are checkpoints that other parties have cosigned, by ascending size, and Witnesses these parties.
	Cosigned  []Cosigned
	Witnesses []statement.Witness
}

// A header is the first line of the file of an evidence bundle, as JSON: the public key, and how many lines
// of each kind follow.
type header struct {
	Format     string  `json:"format"`
	Sandbox    string  `json:"sandbox"`
	Key        string  `json:"key"`
	Records    int64   `json:"records"`
	Manifests  []int64 `json:"manifests"`
	Statements int64   `json:"statements"`
	// Cosigned is left out if there are none, as in the bundles of earlier versions.
	Cosigned  int64    `json:"cosigned,omitempty"`
	Witnesses []string `json:"witnesses,omitempty"`
}

// Encode returns the bundle, the evidence of one sandbox, as the content of a file that [Decode] reads.
func (b *Bundle) Encode() ([]byte, error) {
	h := header{
		Format: Format, Sandbox: b.Sandbox, Key: base64.StdEncoding.EncodeToString(b.Key), Records: int64(len(b.Records)),
		Manifests: []int64{}, Statements: int64(len(b.Statements)),
	}
	for _, m := range b.Manifests {
		h.Manifests = append(h.Manifests, int64(len(m)))
	}
	h.Cosigned = int64(len(b.Cosigned))
	for _, w := range b.Witnesses {
		h.Witnesses = append(h.Witnesses, w.String())
	}
	cosigned, err := b.cosignedLines()
	if err != nil {
		return nil, err
	}
	first, err := audit.Canonical(h)
	if err != nil {
		return nil, err
	}
	last, err := audit.Canonical(string(b.Checkpoint))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	put := func(lines ...[]byte) {
		for _, line := range lines {
			out.Write(line)
			out.WriteByte('\n')
		}
	}
	put(first)
	put(b.Records...)
	for _, m := range b.Manifests {
		put(m...)
	}
	put(b.Statements...)
	put(cosigned...)
	put(last)
	return out.Bytes(), nil
}

// Decode parses text, the file of an evidence bundle, which must have exactly the form that [Bundle.Encode]
// gives it. It checks no signature.
func Decode(text []byte) (*Bundle, error) {
	lines := bytes.Split(text, []byte("\n"))
	var h header
	again, err := []byte(nil), json.Unmarshal(lines[0], &h)
	if err == nil {
		again, err = audit.Canonical(h)
	}
	last := len(lines) - 1
	switch {
	case err != nil || h.Format != Format:
		return nil, errors.New("the first line is no header of a bundle of version 1")
	case last < 2 || len(lines[last]) > 0:
		return nil, errors.New("it does not end with a line break: it is cut off")
	case !bytes.Equal(again, lines[0]):
		return nil, errors.New("the header is not canonical")
	}
	lines = lines[:last]
	b := &Bundle{Sandbox: h.Sandbox}
	if b.Key, err = base64.StdEncoding.Strict().DecodeString(h.Key); err != nil || len(b.Key) != ed25519.PublicKeySize {
		return nil, errors.New("the header has no Ed25519 key")
	}
	rest := lines[1:]
	take := func(n int64) [][]byte {
		if n < 0 || n > int64(len(rest)) {
			err = fmt.Errorf("the header says more lines than there are: lines are missing")
			return nil
		}
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	b.Records = take(h.Records)
	for _, n := range h.Manifests {
		b.Manifests = append(b.Manifests, take(n))
	}
	b.Statements = take(h.Statements)
	cosigned := take(h.Cosigned)
	if err = cmp.Or(err, b.decodeCosigned(cosigned, h.Witnesses)); err != nil {
		return nil, err
	}
	if len(rest) != 1 || h.Statements < 1 || h.Statements > 2 || h.Records < 1 {
		return nil, errors.New("the number of lines differs from the header")
	}
	var signed string
	if json.Unmarshal(rest[0], &signed) != nil {
		return nil, errors.New("the last line is no checkpoint")
	}
	if again, err := audit.Canonical(signed); err != nil || !bytes.Equal(again, rest[0]) {
		return nil, errors.New("the checkpoint is not canonical")
	}
	b.Checkpoint = []byte(signed)
	return b, nil
}
