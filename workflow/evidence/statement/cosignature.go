package statement

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
)

// cosignatureAlgorithm is the number that stands for a timestamped Ed25519 cosignature (C2SP tlog-cosignature, version
// 1) in a signed note.
const cosignatureAlgorithm = 4

// A Witness is another party that cosigns the checkpoints of an evidence log, by which back-dating and rewriting the log
// becomes visible: a witness on the network, or the customer. Its verifier key is text of the form NAME+HASH+KEY.
type Witness struct {
	Name string
	Key  ed25519.PublicKey
}

// NewWitness returns the party that cosigns with key, under the name that snapfs gives the key.
func NewWitness(key ed25519.PublicKey) Witness {
	return Witness{"snapfs/cosigner/" + KeyID(key)[:16], key}
}

// hash returns the short hash by which a cosignature identifies the key.
func (w Witness) hash() []byte {
	sum := sha256.Sum256([]byte(w.Name + "\n" + string(rune(cosignatureAlgorithm)) + string(w.Key)))
	return sum[:4]
}

// String returns the verifier key of the witness, which [ParseWitness] reads.
func (w Witness) String() string {
	return w.Name + "+" + hex.EncodeToString(w.hash()) + "+" + base64.StdEncoding.EncodeToString(append([]byte{cosignatureAlgorithm}, w.Key...))
}

// ParseWitness parses a verifier key for cosignatures of checkpoints of evidence logs, as a witness publishes it.
func ParseWitness(text string) (w Witness, err error) {
	name, rest, _ := strings.Cut(text, "+")
	_, key, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.Strict().DecodeString(key)
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != cosignatureAlgorithm {
		return w, fmt.Errorf("%q is no verifier key for Ed25519 cosignatures (NAME+HASH+KEY)", text)
	}
	w = Witness{name, raw[1:]}
	if name == "" || strings.ContainsAny(name, " \n") || w.String() != text {
		return w, fmt.Errorf("%q is no verifier key: its parts do not fit together", text)
	}
	return w, nil
}

// ReadWitness returns the witness whose key is arg: a verifier key, or a file with one or with a public key in PEM, as
// `snapfs evidence key` prints it.
func ReadWitness(arg string) (Witness, error) {
	if w, err := ParseWitness(arg); err == nil {
		return w, nil
	}
	text, err := os.ReadFile(arg)
	if err != nil {
		return Witness{}, errs.New("reading the key of a witness", arg, errs.ErrInvalid, "it is no verifier key (NAME+HASH+KEY), and no file: "+err.Error())
	}
	if w, err := ParseWitness(strings.TrimSpace(string(text))); err == nil {
		return w, nil
	}
	key, err := ReadPublic(arg)
	return NewWitness(key), err
}

// ReadPrivate reads a private Ed25519 key in PEM, with which a customer cosigns evidence, from the file at path.
func ReadPrivate(path string) (*Key, error) { return readKey(path) }

// cosigned returns the text that a cosignature at this time, in seconds, signs for checkpoint, the text of a signed note
// without its signatures.
func cosigned(checkpoint string, seconds uint64) []byte {
	return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", seconds, checkpoint)
}

// CheckpointText returns the part of a signed checkpoint that is signed: the lines before the signatures.
func CheckpointText(signed []byte) (text string, signatures []string, err error) {
	text, rest, found := strings.Cut(string(signed), "\n\n")
	if !found || !strings.HasSuffix(rest, "\n") {
		return "", nil, errors.New("the checkpoint is malformed")
	}
	return text + "\n", strings.Split(strings.TrimSuffix(rest, "\n"), "\n"), nil
}

// Verify checks line, a cosignature of the checkpoint with this text, as a line of a signed note, and returns its time.
func (w Witness) Verify(checkpoint, line string) (at time.Time, err error) {
	bad := errors.New("the cosignature does not fit the checkpoint and the key of " + strconv.Quote(w.Name))
	encoded, found := strings.CutPrefix(line, "— "+w.Name+" ")
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !found || err != nil || len(raw) != 4+8+ed25519.SignatureSize || string(raw[:4]) != string(w.hash()) {
		return at, bad
	}
	seconds := binary.BigEndian.Uint64(raw[4:])
	if seconds >= 1<<40 || !ed25519.Verify(w.Key, cosigned(checkpoint, seconds), raw[12:]) {
		return at, bad
	}
	return time.Unix(int64(seconds), 0).UTC(), nil
}

// Cosign returns the cosignature of this key, under the name of [NewWitness], for the checkpoint with this text, as a
// line of a signed note.
func (k *Key) Cosign(checkpoint string, at time.Time) string {
	w := NewWitness(k.Public())
	raw := binary.BigEndian.AppendUint64(w.hash(), uint64(at.Unix()))
	raw = append(raw, ed25519.Sign(k.private, cosigned(checkpoint, uint64(at.Unix())))...)
	return "— " + w.Name + " " + base64.StdEncoding.EncodeToString(raw)
}

// LogVerifier returns the verifier key (C2SP signed-note) of a sandbox's evidence log that key signs, which a witness
// needs to know.
func LogVerifier(sandbox string, key ed25519.PublicKey) string {
	return fmt.Sprintf("%s+%08x+%s", Origin(sandbox), noteHash(Origin(sandbox), key), base64.StdEncoding.EncodeToString(append([]byte{algorithm}, key...)))
}
