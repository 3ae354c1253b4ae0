package statement

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// Names of types in the signed statements about a sandbox's evidence: those that in-toto and DSSE fix, and
// the types of snapfs for the start and the end of a sandbox, and
// for the removal of old records.
const (
	PayloadType   = "application/vnd.in-toto+json"
	StatementType = "https://in-toto.io/Statement/v1"
	StartType     = "https://github.com/snapfs/snapfs/evidence/start/v1"
	EndType       = "https://github.com/snapfs/snapfs/evidence/end/v1"
	// RemovalType is the type of the statement about records that a retention rule removed from the log.
	RemovalType = "https://github.com/snapfs/snapfs/evidence/removal/v1"
)

// A Subject is the object that a signed statement is about, such as an evidence log: a name and its digests,
// by algorithm.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// A Statement is a claim about a sandbox's evidence that is to be signed, in the form of in-toto Statement
// v1. Subject is the evidence log, and Predicate the content.
type Statement struct {
	Type          string         `json:"_type"`
	Subject       []Subject      `json:"subject"`
	PredicateType string         `json:"predicateType"`
	Predicate     map[string]any `json:"predicate"`
}

// An Envelope is a signed statement about a sandbox: a DSSE envelope, which holds the statement as its
// payload, with one signature.
type Envelope struct {
	Payload     string      `json:"payload"`
	PayloadType string      `json:"payloadType"`
	Signatures  []Signature `json:"signatures"`
}

// A Signature is the signature of a statement in an [Envelope], with the identifier of the key.
type Signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// preAuth returns the bytes that a DSSE signature signs for body, the payload of an envelope, whose type is
// kind.
func preAuth(kind string, body []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(body), body)
}

// Sign signs a statement about a sandbox's evidence. It returns the envelope, as one line of canonical JSON,
// and the digest of the payload.
func (k *Key) Sign(s Statement) (line []byte, digest string, err error) {
	s.Type = StatementType
	body, err := audit.Canonical(s)
	if err != nil {
		return nil, "", err
	}
	sig := ed25519.Sign(k.private, preAuth(PayloadType, body))
	line, err = audit.Canonical(Envelope{
		Payload: base64.StdEncoding.EncodeToString(body), PayloadType: PayloadType,
		Signatures: []Signature{{KeyID(k.Public()), base64.StdEncoding.EncodeToString(sig)}},
	})
	return line, audit.Digest(body), err
}

// Open verifies line, a signed statement as [Key.Sign] returns it, with key, and returns the statement and
// the digest of its payload.
func Open(line []byte, key ed25519.PublicKey) (s Statement, digest string, err error) {
	var e Envelope
	if !audit.IsCanonical(line) || json.Unmarshal(line, &e) != nil || len(e.Signatures) != 1 {
		return s, "", errors.New("it is no envelope with one signature")
	}
	again, err := audit.Canonical(e)
	if err != nil || string(again) != string(line) || e.PayloadType != PayloadType {
		return s, "", errors.New("the envelope has unknown fields or another type")
	}
	strict := base64.StdEncoding.Strict()
	body, err := strict.DecodeString(e.Payload)
	if err != nil {
		return s, "", errors.New("the payload is no base64")
	}
	sig, err := strict.DecodeString(e.Signatures[0].Sig)
	if err != nil || e.Signatures[0].KeyID != KeyID(key) || !ed25519.Verify(key, preAuth(PayloadType, body), sig) {
		return s, "", errors.New("the signature does not fit the statement and the key")
	}
	if json.Unmarshal(body, &s) != nil || s.Type != StatementType {
		return s, "", errors.New("the payload is no statement")
	}
	return s, audit.Digest(body), nil
}
