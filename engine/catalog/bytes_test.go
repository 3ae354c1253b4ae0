package catalog

import (
	"encoding/json"
	"testing"

	"github.com/snapfs/snapfs/internal/exactjson/exactjsontest"
)

// TestRecordKeepsAnyBytes: paths, variables and programs of a record may be any bytes, and each way to read a record
// returns them.
func TestRecordKeepsAnyBytes(t *testing.T) {
	write := func(r Record) ([]byte, error) { return encode(&r) }
	present := func(r *Record) { r.Format = Format }
	for name, read := range map[string]decoder{"one by one": decode, "many": decodeQuick} {
		t.Run(name, func(t *testing.T) {
			exactjsontest.RoundTrip(t, write, func(text []byte) (Record, error) {
				r, err := read("record.json", text)
				if err != nil {
					return Record{}, err
				}
				return *r, nil
			}, present)
		})
	}
}

// TestRecordInUTF8StaysJSON: other programs, and older versions of snapfs, read a path in UTF-8 as it is.
func TestRecordInUTF8StaysJSON(t *testing.T) {
	const workspace = "/home/zoë/\ufffd"
	text, err := encode(&Record{ID: "x", Name: "x", Workspace: workspace, Policy: Policy{Hide: []string{workspace}}})
	var r Record
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.Workspace != workspace || len(r.Policy.Hide) != 1 || r.Policy.Hide[0] != workspace {
		t.Errorf("read as %+v (%v)", r, err)
	}
}
