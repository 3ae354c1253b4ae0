package catalog

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/proc"
)

// usualRecord returns a record with all fields that a usual one has.
func usualRecord() *Record {
	zone := time.FixedZone("", 5400)
	return &Record{
		Format: Format, ID: "k3x9", Name: "work-k3x9", State: Ready, Created: time.Date(2026, 1, 2, 3, 4, 5, 600, zone), Workspace: "/srv/work",
		Life:          &Life{Age: -time.Second, At: Instant{Wall: time.Unix(7, 0).UTC(), Boot: "b00t", Up: time.Hour, Unsure: true}},
		BareWorkspace: true, Ephemeral: true, At: "call-7", Policy: Policy{Network: "none", Limits: Limits{RemoveAfter: 7 * 24 * time.Hour}}, Supervisor: &proc.Process{PID: 12, Start: 34567, Boot: "b00t"}, Untouched: true, Next: 4,
		Trees: []Tree{
			{Path: "/", Driver: "overlay", Reason: "the first choice", Base: "k3x9-s1", Fork: "k3x9-f2", Taken: time.Unix(1, 2).UTC(), Frozen: true, Mounted: true},
			{Path: "/srv", Driver: "btrfs", Base: "k3x9-s3", Fork: "k3x9-f4"},
		},
	}
}

// A usual record is written as package json writes it, and read as package json reads it, whichever of its fields it has.
func TestAUsualRecordHasTheFormOfPackageJSON(t *testing.T) {
	fields := []func(*Record){
		func(r *Record) { r.Life = nil },
		func(r *Record) { r.Life.At.Boot, r.Life.At.Unsure = "", false },
		func(r *Record) { r.BareWorkspace = false },
		func(r *Record) { r.Ephemeral = false },
		func(r *Record) { r.Trees = r.Trees[:1] },
		func(r *Record) { r.Trees[0].Reason, r.Trees[0].Frozen, r.Trees[0].Mounted = "", false, false },
		func(r *Record) { r.Supervisor = nil },
		func(r *Record) { r.Untouched = false },
		func(r *Record) { r.At = "" },
		func(r *Record) { r.Policy.Limits.RemoveAfter = 0 },
		func(r *Record) { r.Next, r.Policy.Network, r.State = 0, "", "" },
	}
	for chosen := range 1 << len(fields) {
		r := usualRecord()
		for i, without := range fields {
			if chosen&(1<<i) != 0 && (i != 1 || r.Life != nil) {
				without(r)
			}
		}
		want, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text, ok := encodeUsual(r)
		if !ok || string(text) != string(want) {
			t.Fatalf("%b: usual %v:\n%s", chosen, ok, cmp.Diff(string(want), string(text)))
		}
		var byJSON Record
		if err := json.Unmarshal(want, &byJSON); err != nil {
			t.Fatal(err)
		}
		got, ok := decodeUsual(append(text, '\n'))
		if !ok || !reflect.DeepEqual(got, &byJSON) {
			t.Fatalf("%b: usual %v, read as %+v, by package json as %+v", chosen, ok, got, &byJSON)
		}
	}
}

// Each field of a record that a usual one does not have, and each text that JSON escapes, is left to package json.
func TestAnUnusualRecordIsLeftToPackageJSON(t *testing.T) {
	usual := map[string]bool{
		"Format": true, "ID": true, "Name": true, "State": true, "Created": true, "Life": true, "Workspace": true, "BareWorkspace": true, "Ephemeral": true,
		"Trees": true, "Supervisor": true, "Untouched": true, "Next": true, "Network": true, "At": true, "RemoveAfter": true,
	}
	var check func(r *Record, v reflect.Value)
	check = func(r *Record, v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			if usual[name] || !v.Type().Field(i).IsExported() {
				continue
			}
			if f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]() {
				check(r, f)
				continue
			}
			was := reflect.New(f.Type()).Elem()
			was.Set(f)
			set(t, f)
			if text, ok := encodeUsual(r); ok {
				t.Errorf("a record with the field %s is usual:\n%s", name, text)
			}
			f.Set(was)
		}
	}
	r := usualRecord()
	check(r, reflect.ValueOf(r).Elem())
	if text, ok := encodeUsual(r); !ok {
		t.Errorf("the record is not usual without these fields:\n%s", text)
	}
	for _, bad := range []string{"a\"b", "a\\b", "<", "é", "\xff", "\n"} {
		for i, change := range []func(r *Record){
			func(r *Record) { r.Name = bad }, func(r *Record) { r.Workspace = bad }, func(r *Record) { r.Trees[0].Path = bad }, func(r *Record) { r.Trees[1].Reason = bad },
		} {
			r := usualRecord()
			change(r)
			if text, ok := encodeUsual(r); ok {
				t.Errorf("%d: a record with the text %q is usual:\n%s", i, bad, text)
			}
		}
	}
	if _, ok := encodeUsual(&Record{ID: "a"}); ok {
		t.Error("a record without trees is usual")
	}
}

// set makes v a value that is not the zero value of its type.
func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	default:
		t.Fatalf("no value of the type %v", v.Type())
	}
}

// A text that is not exactly that of a usual record is left to package json.
func TestAnotherTextIsNoUsualRecord(t *testing.T) {
	text, ok := encodeUsual(usualRecord())
	if !ok {
		t.Fatal("the record is not usual")
	}
	whole := string(text) + "\n"
	if _, ok := decodeUsual([]byte(whole)); !ok {
		t.Fatal("the text is not read")
	}
	for i := range whole {
		if _, ok := decodeUsual([]byte(whole[:i])); ok {
			t.Errorf("the first %d bytes are a record", i)
		}
	}
	for i := range whole[:len(whole)-1] {
		for _, b := range []string{"", "\\", "\x00"} {
			other := whole[:i] + b + whole[i+1:]
			got, ok := decodeUsual([]byte(other))
			if !ok {
				continue
			}
			var byJSON Record
			if err := json.Unmarshal([]byte(other), &byJSON); err != nil || !reflect.DeepEqual(got, &byJSON) {
				t.Errorf("package json reads another record, %v:\n%s", err, other)
			}
		}
	}
	if _, ok := decodeUsual([]byte(whole + "\n")); ok {
		t.Error("a text with one more line is a usual record")
	}
}

// A usual record with snapshots is read without package json, as one without them is.
func TestAUsualRecordWithSnapshotsIsReadWithoutPackageJSON(t *testing.T) {
	r := usualRecord()
	r.Snapshots = []NamedSnapshot{{Name: "a", Taken: time.Unix(5, 0).UTC(), IDs: []snapshot.ID{"k3x9-s1"}}, {Name: "call-7", Taken: time.Unix(6, 0).UTC(), Parent: "a", IDs: []snapshot.ID{"k3x9-s5"}}}
	text, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = withoutSum(text); err != nil {
		t.Fatal(err)
	}
	rest, list, err := cutSnapshots(string(text))
	if err != nil || !reflect.DeepEqual(list, r.Snapshots) {
		t.Fatalf("the snapshots are %+v, %v", list, err)
	}
	if _, ok := decodeUsual(rest); !ok {
		t.Errorf("the rest is not usual:\n%s", rest)
	}
	var byJSON Record
	if err := json.Unmarshal(text, &byJSON); err != nil {
		t.Fatal(err)
	}
	if got, err := decodeText(text); err != nil || !reflect.DeepEqual(got, &byJSON) {
		t.Errorf("read as %+v, %v, by package json as %+v", got, err, &byJSON)
	}
}
