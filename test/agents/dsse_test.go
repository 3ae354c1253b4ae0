//go:build linux

package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// verifyDSSE verifies an envelope with the library of the authors of DSSE, and reads the statement
// with that of in-toto. Its arguments are a file with the public key, and one with the envelope.
const verifyDSSE = `
import json, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

line = open(sys.argv[2]).read()
envelope = Envelope.from_dict(json.loads(line))
keyid = json.loads(line)["signatures"][0]["keyid"]
key = SSlibKey.from_crypto(load_pem_public_key(open(sys.argv[1], "rb").read()), keyid=keyid)
assert list(envelope.verify([key], 1)) == [keyid]
found = Statement.copy_from_pb(json_format.Parse(envelope.payload, statement_pb2.Statement()))
found.validate()
print(found.pb.predicate_type, found.pb.subject[0].name)
envelope.payload += b" "
try:
    envelope.verify([key], 1)
    sys.exit("a changed payload is accepted")
except VerificationError:
    print("refused")
`

// TestInTotoVerifiesAStatement: the libraries of in-toto for Python, unchanged as their registry has
// them. Only make test-long runs it.
func TestInTotoVerifiesAStatement(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	dir := treetest.Dir(t)
	key, err := statement.HostKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	line, _, err := key.Sign(statement.Statement{
		Subject: []statement.Subject{{Name: "snapfs/evidence/s1", Digest: map[string]string{"sha256": "00"}}}, PredicateType: statement.StartType,
		Predicate: map[string]any{"sandbox": "s1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	envelope := filepath.Join(dir, "envelope")
	if err := os.WriteFile(envelope, line, 0o600); err != nil {
		t.Fatal(err)
	}
	python := pip(t, "securesystemslib[crypto]==1.6.0", "in-toto-attestation==0.9.3")
	out, err := exec.Command(python, "-c", verifyDSSE, filepath.Join(dir, statement.PublicName), envelope).CombinedOutput()
	if err != nil || string(out) != statement.StartType+" snapfs/evidence/s1\nrefused\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
