package statement

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/errs"
)

// KeyName is the name of the file with the private key by which the host signs evidence, the logs of
// everything done with sandboxes. PublicName is that of the file with the public key. Both lie in the
// directory evidence of the state directory.
const (
	KeyName    = "key.pem"
	PublicName = "key.pub"
)

// A Key is the private key (Ed25519) with which a host signs the evidence about its sandboxes.
type Key struct{ private ed25519.PrivateKey }

// HostKey returns the key with which this host signs evidence about sandboxes. It is stored in the directory
// dir; HostKey creates it if there is none. If two processes create it at once, both return the same key.
func HostKey(dir string) (*Key, error) {
	path := filepath.Join(dir, KeyName)
	key, err := readKey(path)
	if errors.Is(err, errs.ErrNotFound) {
		if err := makeKey(dir, path); err != nil {
			return nil, err
		}
		return readKey(path)
	}
	return key, err
}

// macLabel precedes each text of which [MAC] makes a code, so that the code is worth nothing for another use
// of the key.
const macLabel = "snapfs evidence verified\n"

// MAC returns an authentication code (HMAC-SHA256) of text, a position in an evidence log. Only a process that
// can read the host's signing key, in the directory dir, can make or check it. MAC creates no key. Errors:
// errs.ErrNotFound.
func MAC(dir string, text []byte) ([]byte, error) {
	seed, err := readSeed(filepath.Join(dir, KeyName))
	if err != nil {
		return nil, err
	}
	code := hmac.New(sha256.New, seed)
	code.Write([]byte(macLabel))
	code.Write(text)
	return code.Sum(nil), nil
}

// readKey reads the key with which this host signs evidence from the file path.
func readKey(path string) (*Key, error) {
	seed, err := readSeed(path)
	if err != nil {
		return nil, err
	}
	return &Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// readSeed reads the 32 secret bytes of the key with which this host signs evidence from the file path. To
// compute the key from them takes a process a millisecond the first time, which [MAC] does without.
func readSeed(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.With("reading the key of this host", path, err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, notKey(path)
	}
	seed, ok := bytes.CutPrefix(block.Bytes, privatePrefix)
	if !ok || len(seed) != ed25519.SeedSize {
		return nil, notKey(path)
	}
	return seed, nil
}

// privatePrefix and publicPrefix are the bytes that precede the 32 bytes of an Ed25519 key in its DER
// encoding (RFC 8410). Package x509, which could encode keys, would bring 24 more packages into each program
// that opens an engine.
var (
	privatePrefix = []byte{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20}
	publicPrefix  = []byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}
)

func notKey(path string) error {
	return errs.New("reading a key", path, errs.ErrCorrupt, "it is no Ed25519 key in PEM")
}

// makeKey creates the key with which this host signs evidence in the file path, in the directory dir, unless
// another process is quicker, and the public key beside it.
func makeKey(dir, path string) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	der := slices.Concat(privatePrefix, private.Seed())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.With("making the key of this host", path, err)
	}
	next, err := os.CreateTemp(dir, "key-*.new") // mode 0600
	if err != nil {
		return errs.With("making the key of this host", path, err)
	}
	defer os.Remove(next.Name()) //nolint:errcheck // the next key does not need its name
	_, err = next.Write(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Link(next.Name(), path) // unlike a rename, it replaces no key
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, PublicName), PublicPEM(public), 0o644)
	}
	return errs.With("making the key of this host", path, err)
}

// Public returns the public key, with which others verify the host's signatures of evidence.
func (k *Key) Public() ed25519.PublicKey {
	return ed25519.PublicKey(k.private[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
}

// PublicPEM returns a public key, with which evidence is verified, as PEM text, for a file that [ReadPublic]
// reads.
func PublicPEM(key ed25519.PublicKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: slices.Concat(publicPrefix, key)})
}

// ReadPublic reads the public key with which evidence is verified from the PEM file at path.
func ReadPublic(path string) (ed25519.PublicKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.With("reading a key", path, err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, notKey(path)
	}
	public, ok := bytes.CutPrefix(block.Bytes, publicPrefix)
	if !ok || len(public) != ed25519.PublicKeySize {
		return nil, notKey(path)
	}
	return public, nil
}

// KeyID returns the identifier that a public key has in signatures of evidence: the SHA-256 digest of its 32
// bytes, in hexadecimal digits.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}
