package statement

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// algorithm is the number that stands for Ed25519 in a signed note (C2SP signed-note), the form in which
// snapfs signs the state of an evidence log.
const algorithm = 1

// Origin returns the name that the evidence log of a sandbox, and the key that signs it, have in a checkpoint
// (the signed size and root hash of the log).
func Origin(sandbox string) string { return "snapfs/evidence/" + sandbox }

// noteHash returns the short hash by which a signed note, such as the checkpoint of an evidence log,
// identifies the key called name.
func noteHash(name string, key ed25519.PublicKey) uint32 {
	sum := sha256.Sum256([]byte(name + "\n" + string(rune(algorithm)) + string(key)))
	return binary.BigEndian.Uint32(sum[:])
}

// A noteKey signs and verifies checkpoints, signed sizes and root hashes of an evidence log. It implements
// the interfaces of package note.
type noteKey struct {
	name    string
	private ed25519.PrivateKey // or nil
	public  ed25519.PublicKey
}

func (k noteKey) Name() string                     { return k.name }
func (k noteKey) KeyHash() uint32                  { return noteHash(k.name, k.public) }
func (k noteKey) Sign(text []byte) ([]byte, error) { return ed25519.Sign(k.private, text), nil }
func (k noteKey) Verify(text, sig []byte) bool     { return ed25519.Verify(k.public, text, sig) }

// A Checkpoint is the size and the Merkle root of a sandbox's evidence log at one moment. Signed, it fixes
// all records so far.
type Checkpoint struct {
	Sandbox string
	Size    int64
	Root    tlog.Hash
}

func (c Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", Origin(c.Sandbox), c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// SignCheckpoint returns the checkpoint c, the size and root hash of an evidence log, as a signed note: a
// text with the signature of this host.
func (k *Key) SignCheckpoint(c Checkpoint) ([]byte, error) {
	return note.Sign(&note.Note{Text: c.text()}, noteKey{Origin(c.Sandbox), k.private, k.Public()})
}

// OpenCheckpoint verifies signed, the checkpoint of an evidence log as SignCheckpoint returns it. It checks
// that key signed it and that it is about the log of this sandbox, and returns the checkpoint.
func OpenCheckpoint(signed []byte, sandbox string, key ed25519.PublicKey) (c Checkpoint, err error) {
	n, err := note.Open(signed, note.VerifierList(noteKey{name: Origin(sandbox), public: key}))
	if err != nil {
		return c, errors.New("the checkpoint is not signed for this log by this key")
	}
	lines := strings.Split(n.Text, "\n")
	bad := errors.New("the checkpoint is malformed")
	if len(lines) != 4 {
		return c, bad
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return c, bad
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	c = Checkpoint{sandbox, size, root}
	if err != nil || c.text() != n.Text || len(n.UnverifiedSigs) > 0 || len(n.Sigs) != 1 {
		return c, bad
	}
	sig := fmt.Sprintf("%s\n— %s %s\n", n.Text, n.Sigs[0].Name, n.Sigs[0].Base64)
	if strict, serr := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64); serr != nil || len(strict) != 4+ed25519.SignatureSize || sig != string(signed) {
		return c, bad
	}
	return c, nil
}
