package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
)

// A Record is the verified evidence of one sandbox: the bundle, its decoded records, and the verdicts on it.
// [Read] makes it for [Page] and [Lines].
type Record struct {
	Bundle  *bundle.Bundle
	Report  bundle.Report
	Records []audit.Record
}

// Read decodes text, an evidence bundle that the caller has verified with the result report.
func Read(text []byte, report bundle.Report) (*Record, error) {
	b, err := bundle.Decode(text)
	if err != nil {
		return nil, err
	}
	records, bad := audit.ParseAll(b.Records)
	if bad >= 0 {
		return nil, fmt.Errorf("record %d is no record", bad)
	}
	return &Record{b, report, records}, nil
}

// text returns the named field in the data of an evidence record as text, "" if there is none.
func text(data map[string]any, field string) string {
	switch v := data[field].(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, fmt.Sprint(one))
		}
		return strings.Join(all, " ")
	case float64:
		return fmt.Sprint(int64(v))
	default:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if e.Encode(v) != nil {
			return ""
		}
		return strings.TrimSpace(b.String())
	}
}

// number returns the named field in the data of an evidence record if it is a number, else 0.
func number(data map[string]any, field string) int64 {
	n, _ := data[field].(float64)
	return int64(n)
}

// object returns the named field in the data of an evidence record if it is an object, else an empty one.
func object(data map[string]any, field string) map[string]any {
	m, _ := data[field].(map[string]any)
	return m
}

// when returns the time of an evidence record; the zero time if it has none.
func when(r audit.Record) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, r.Time)
	return at
}

// who returns a text for the user that the data of an evidence record names, "" for none.
func who(data map[string]any) string {
	by := object(data, "by")
	if len(by) == 0 {
		return ""
	}
	name := text(by, "user")
	if name == "" {
		name = "user " + text(by, "uid")
	}
	if from := text(by, "sudo_uid"); from != "" {
		name += " (sudo by user " + from + ")"
	}
	return name
}

// nameOf returns the last name of the sandbox by the records of its evidence log.
func (r *Record) nameOf() (name string) {
	for _, rec := range r.Records {
		if n := text(rec.Data, "name"); n != "" && (rec.Type == sandboxCreated || rec.Type == sandboxRenamed) {
			name = n
		}
	}
	return name
}

// sortedKeys returns the names of the fields of m, an object in an evidence record, in order.
func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
