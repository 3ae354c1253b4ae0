//go:build linux

package api

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// TestACustomerCosignsAtTheStartAndAtTheEnd: with a key that this host does not have, by the API alone, and a verifier who
// trusts that key says so. It costs some 0.5 s.
func TestACustomerCosignsAtTheStartAndAtTheEnd(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	customer, err := statement.HostKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d.snapfs("new", "--evidence", "t1")
	fetch := func() []byte {
		t.Helper()
		return call(d.c.ExportEvidenceWithResponse(ctx, "t1")).is(d, 200).Body
	}
	cosign := func(status int, record []byte) *client.Cosignature {
		t.Helper()
		return call(d.c.CosignEvidenceWithBodyWithResponse(ctx, "t1", nil, fileType, bytes.NewReader(record))).is(d, status).JSON201
	}
	countersigned := func(record []byte) []byte {
		t.Helper()
		out, err := bundle.Countersign(record, customer, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	host, err := statement.HostKey(d.state + "/evidence")
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(want, why string) {
		t.Helper()
		r := bundle.Verify(fetch(), bundle.Options{Key: host.Public(), Witnesses: []statement.Witness{statement.NewWitness(customer.Public())}})
		if r.Verdicts[0].Result != "yes" || r.Verdicts[1].Result != want || !strings.Contains(r.Verdicts[1].Why, why) {
			t.Errorf("%+v; want the signer %s, %q", r.Verdicts[:2], want, why)
		}
	}
	start := countersigned(fetch())
	if c := cosign(201, start); c.Records != 2 || c.Witness != statement.NewWitness(customer.Public()).Name || c.Id == "" {
		t.Errorf("%+v", c)
	}
	d.exec("t1", "echo made > made")
	end := call(d.c.EndEvidenceWithResponse(ctx, "t1", nil)).is(d, 200).JSON200
	if end.Records < 4 || len(end.Root) != 64 {
		t.Errorf("%+v", end)
	}
	verdict("no", "0 of the 1 required witnesses have cosigned")
	ended := countersigned(fetch())
	if c := cosign(201, ended); c.Records != end.Records {
		t.Errorf("%+v, and the record has %d", c, end.Records)
	}
	verdict("yes", "records cosigned at ")
	cosign(201, start) // again, and late

	// What is no cosignature of this record changes nothing.
	before := fetch()
	cosign(422, bytes.Replace(ended, []byte(`"status":0`), []byte(`"status":1`), 1))
	d.snapfs("new", "--evidence", "t2")
	cosign(422, countersigned(call(d.c.ExportEvidenceWithResponse(ctx, "t2")).is(d, 200).Body))
	call(d.c.CosignEvidenceWithBodyWithResponse(ctx, "none", nil, fileType, bytes.NewReader(start))).is(d, 404)
	d.want(413, nil, "POST", "/v1/sandboxes/t1/evidence/cosignatures", bytes.NewReader(make([]byte, maxRecord+1)))
	if !bytes.Equal(before, fetch()) {
		t.Error("the record changed")
	}

	// The record of a removed sandbox can be cosigned as well, with a token for that.
	d.snapfs("rm", "t1")
	cosign(201, countersigned(fetch()))
	for name, scopes := range map[string][]token.Scope{"reader": {token.Read, token.Run, token.Promote}, "customer": {token.Read, token.Cosign}} {
		text, err := token.Open(d.state).New(token.Token{Name: name, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		d.token = text
		fetch()
		if name == "reader" {
			cosign(403, start)
			continue
		}
		cosign(201, start)
		call(d.c.EndEvidenceWithResponse(ctx, "t1", nil)).is(d, 403)
	}
}
