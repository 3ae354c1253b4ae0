package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// A Cosigned is a checkpoint of an evidence log, as the host has signed it, with the cosignatures of other parties.
type Cosigned struct {
	// Checkpoint is the signed note, followed by a line for each cosignature.
	Checkpoint []byte
}

// lines returns the lines of the bundle's file about cosigned checkpoints.
func (b *Bundle) cosignedLines() (all [][]byte, err error) {
	for _, c := range b.Cosigned {
		line, err := audit.Canonical(string(c.Checkpoint))
		if err != nil {
			return nil, err
		}
		all = append(all, line)
	}
	return all, nil
}

// decodeCosigned puts the cosigned checkpoints in lines into the bundle, and the verifier keys of the witnesses.
func (b *Bundle) decodeCosigned(lines [][]byte, witnesses []string) error {
	for _, text := range witnesses {
		w, err := statement.ParseWitness(text)
		if err != nil {
			return err
		}
		b.Witnesses = append(b.Witnesses, w)
	}
	for _, line := range lines {
		var signed string
		if json.Unmarshal(line, &signed) != nil {
			return errors.New("a cosigned checkpoint is no text")
		}
		if again, err := audit.Canonical(signed); err != nil || !bytes.Equal(again, line) {
			return errors.New("a cosigned checkpoint is not canonical")
		}
		b.Cosigned = append(b.Cosigned, Cosigned{[]byte(signed)})
	}
	return nil
}

// A cosigner is a witness that has cosigned the evidence log: the size of the longest log that it has seen, and when.
type cosigner struct {
	statement.Witness
	size int64
	at   time.Time
}

// checkCosigned returns a fault unless each cosigned checkpoint is one of this log, signed by the host, each of its
// cosignatures is by one of the bundle's witnesses, and each witness has one.
func (c *checked) checkCosigned() *fault {
	for _, w := range c.Witnesses {
		c.cosigners = append(c.cosigners, cosigner{Witness: w})
	}
	last := int64(0)
	for i, one := range c.Cosigned {
		text, lines, err := statement.CheckpointText(one.Checkpoint)
		if err != nil || len(lines) < 2 {
			return faultf("cosignature", "cosigned checkpoint %d is malformed", i)
		}
		point, err := statement.OpenCheckpoint([]byte(text+"\n"+lines[0]+"\n"), c.Sandbox, c.Key)
		if err != nil {
			return faultf("cosignature", "cosigned checkpoint %d: %v", i, err)
		}
		if point.Size <= last {
			return faultf("cosignature", "the cosigned checkpoints are out of order")
		}
		last = point.Size
		if f := c.hasRoot("cosignature", point.Size, point.Root); f != nil {
			return f
		}
		seen := map[int]bool{}
		for _, line := range lines[1:] {
			at, when := c.cosignerOf(text, line)
			if at < 0 || seen[at] {
				return faultf("cosignature", "a cosignature of checkpoint %d is by no witness that the bundle names, or twice", i)
			}
			seen[at] = true
			c.cosigners[at].size, c.cosigners[at].at = point.Size, when
		}
	}
	for _, w := range c.cosigners {
		if w.size == 0 {
			return faultf("cosignature", "%s has cosigned nothing", w.Name)
		}
	}
	return nil
}

// cosignerOf returns the place of the witness that has made a cosignature of the checkpoint text, and its time; -1 if
// none of the bundle's has.
func (c *checked) cosignerOf(text, line string) (int, time.Time) {
	for i, w := range c.cosigners {
		if when, err := w.Verify(text, line); err == nil {
			return i, when
		}
	}
	return -1, time.Time{}
}

// witnessed returns a fault unless at least the least number of the trusted witnesses have cosigned the log up to its
// end statement, or up to the last record of a log without one; and the text about all witnesses for the verdict. It
// counts keys: a cosignature does not sign the name of its witness, so a bundle can have one under several names.
func (c *checked) witnessed(trusted []statement.Witness, least int) (said string, f *fault) {
	need := c.tree.Size()
	if len(c.sizes) == 2 {
		need = c.sizes[1] + 1
	}
	required, enough := map[string]bool{}, map[string]bool{}
	for _, t := range trusted {
		required[string(t.Key)] = true
	}
	for _, w := range c.cosigners {
		key := string(w.Key)
		if required[key] && w.size >= need {
			enough[key] = true
		}
		how := ", whose key is not trusted here (--witness)"
		if required[key] {
			how = ""
		}
		said += fmt.Sprintf("; %d of %d records cosigned at %s by %s%s", w.size, c.tree.Size(), w.at.Format(time.RFC3339), w.Name, how)
	}
	if least == 0 {
		least = len(required)
	}
	if len(trusted) > 0 && len(enough) < least {
		return said, faultf("witness", "%d of the %d required witnesses have cosigned the first %d records%s", len(enough), least, need, said)
	}
	return said, nil
}

// signed returns the verdict on the signer: the host's key, and the witnesses if the reader trusts some.
func (c *checked) signed(o Options) Verdict {
	f := c.signer(o.Key)
	said, missing := c.witnessed(o.Witnesses, o.Least)
	if f == nil {
		f = missing
	}
	return f.verdict(Signer, "signed by the key that you trust"+said)
}

// AddCosignature adds line, a cosignature of the checkpoint signed by the witness w, to the bundle. signed is the note
// as the host has signed it.
func (b *Bundle) AddCosignature(signed []byte, line string, w statement.Witness) error {
	text, _, err := statement.CheckpointText(signed)
	if err == nil {
		_, err = w.Verify(text, line)
	}
	if err != nil {
		return err
	}
	point, err := statement.OpenCheckpoint(signed, b.Sandbox, b.Key)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(b.Witnesses, func(t statement.Witness) bool { return t.String() == w.String() }) {
		b.Witnesses = append(b.Witnesses, w)
	}
	at := 0
	for ; at < len(b.Cosigned); at++ {
		if bytes.HasPrefix(b.Cosigned[at].Checkpoint, signed) {
			if old := string(b.Cosigned[at].Checkpoint); !strings.Contains(old, "\n— "+w.Name+" ") {
				b.Cosigned[at].Checkpoint = []byte(old + line + "\n")
			}
			return nil
		}
		other, _, err := statement.CheckpointText(b.Cosigned[at].Checkpoint)
		if err != nil {
			return err
		}
		var size int64
		if _, err := fmt.Sscanf(strings.SplitN(other, "\n", 3)[1], "%d", &size); err != nil {
			return err
		}
		if size > point.Size {
			break
		}
	}
	b.Cosigned = slices.Insert(b.Cosigned, at, Cosigned{[]byte(string(signed) + line + "\n")})
	return nil
}

// Countersign returns the bundle in text with a cosignature of its checkpoint by key, with which the holder of the key
// says: I have seen this record. It verifies the integrity first. Errors: if the bundle is not as it was signed.
func Countersign(text []byte, key *statement.Key, now time.Time) ([]byte, error) {
	c, f := check(text)
	if f != nil {
		return nil, errors.New(f.name + ": " + f.why)
	}
	point, _, err := statement.CheckpointText(c.Checkpoint)
	if err == nil {
		err = c.AddCosignature(c.Checkpoint, key.Cosign(point, now), statement.NewWitness(key.Public()))
	}
	if err != nil {
		return nil, err
	}
	return c.Encode()
}
