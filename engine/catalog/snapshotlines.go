package catalog

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// A sandbox may have thousands of named snapshots, and each command reads its record a few times. So a record
// has each snapshot in one line, which this file reads and writes several times faster than package json. The
// record stays JSON that any program reads. Lines with rare fields, and records in other forms, such as those
// that a person has edited, go through package json.

const (
	// recordStart begins each record that this program has written in lines. Package json must parse others as a
	// whole.
	recordStart = "{\n  \"format\": "
	// listStart and listEnd are the text before and after the list of named snapshots in a record, and lineIndent
	// begins each line of the list, one snapshot. Strings in JSON have no newline, so that these texts occur nowhere
	// else in a record.
	listStart  = "\n  \"snapshots\": [\n"
	lineIndent = "    "
	listEnd    = "\n  ]"
	// afterList begins a field that each record has. The list of snapshots is inserted before it.
	afterList = "\n  \"policy\": "
)

// insertSnapshots returns the JSON text of a record, which has no snapshots yet, with the list of them, a line for
// each: writing and reading lines costs less than encoding the list as JSON.
func insertSnapshots(text []byte, list []NamedSnapshot) ([]byte, error) {
	if len(list) == 0 {
		return text, nil
	}
	at := bytes.Index(text, []byte(afterList))
	all := make([]byte, 0, len(text)+160*len(list))
	all = append(append(all, text[:at]...), listStart...)
	for i := range list {
		if i > 0 {
			all = append(all, ",\n"...)
		}
		var err error
		if all, err = appendSnapshot(append(all, lineIndent...), &list[i]); err != nil {
			return nil, err
		}
	}
	return append(append(append(all, listEnd...), ','), text[at:]...), nil
}

// appendSnapshot appends a named snapshot to text, as JSON in one line.
func appendSnapshot(text []byte, m *NamedSnapshot) ([]byte, error) {
	usual := m.Base == nil && m.Sent == "" && len(m.MountPoints) == 0 && m.Why == nil && len(m.IDs) > 0 &&
		exactjson.IsPlain(m.Name) && exactjson.IsPlain(m.Parent) && m.Taken.Year() >= 0 && m.Taken.Year() < 10000
	for _, id := range m.IDs {
		usual = usual && exactjson.IsPlain(string(id))
	}
	if !usual {
		line, err := exactjson.Encode(m)
		return append(text, line...), err
	}
	text = append(append(append(text, `{"name":"`...), m.Name...), `","taken":"`...)
	text = append(m.Taken.AppendFormat(text, time.RFC3339Nano), '"')
	if m.Parent != "" {
		text = append(append(append(text, `,"parent":"`...), m.Parent...), '"')
	}
	text = append(text, `,"ids":`...)
	for i, id := range m.IDs {
		before := byte('[')
		if i > 0 {
			before = ','
		}
		text = append(append(append(text, before, '"'), id...), '"')
	}
	return append(text, "]}"...), nil
}

// errNoLines means that a record has no list of snapshots in the form in which insertSnapshots writes it; package
// json then parses the whole record.
var errNoLines = errors.New("the record has no lines of snapshots")

// cutSnapshots takes the list of snapshots out of the text of a record and returns the rest, which is the text of the
// record without snapshots. Errors: errNoLines, and those of package json for a line.
func cutSnapshots(text string) (rest []byte, list []NamedSnapshot, err error) {
	head, lines, found := strings.Cut(text, listStart)
	lines, tail, ended := strings.Cut(lines, listEnd)
	tail, comma := strings.CutPrefix(tail, ",")
	if !found || !ended || !comma || !strings.HasPrefix(text, recordStart) {
		return nil, nil, errNoLines
	}
	n := strings.Count(lines, "\n") + 1
	list = make([]NamedSnapshot, n)
	p := snapshotParser{ids: make([]snapshot.ID, 0, 4*n)}
	for i := range list {
		line, more, _ := strings.Cut(lines, "\n")
		line, indented := strings.CutPrefix(line, lineIndent)
		line, comma := strings.CutSuffix(line, ",")
		if !indented || comma != (i+1 < n) {
			return nil, nil, errNoLines
		}
		if !p.parse(line, &list[i]) {
			if err := exactjson.Decode([]byte(line), &list[i]); err != nil {
				return nil, nil, err
			}
		}
		lines = more
	}
	return append([]byte(head), tail...), list, nil
}

// A snapshotParser reads the lines of a record that describe named snapshots, those with only a name, time, parent
// and ids. That is faster than package json, which reads the other lines.
type snapshotParser struct {
	rest string
	ids  []snapshot.ID // of all snapshots, so that they take one allocation
}

// parse sets m to the named snapshot that line, JSON text, describes, and reports whether it could. Otherwise m stays
// zero, and the caller uses package json.
func (p *snapshotParser) parse(line string, m *NamedSnapshot) bool {
	p.rest = line
	var got NamedSnapshot
	var taken string
	if !p.value(`{"name":`, &got.Name) || !p.value(`,"taken":`, &taken) {
		return false
	}
	p.value(`,"parent":`, &got.Parent)
	first := len(p.ids)
	for before := `,"ids":[`; ; before = "," {
		var id string
		if !p.value(before, &id) {
			break
		}
		p.ids = append(p.ids, snapshot.ID(id))
	}
	var err error
	if got.Taken, err = time.Parse(time.RFC3339Nano, taken); err != nil || p.rest != "]}" || len(p.ids) == first {
		p.ids = p.ids[:first]
		return false
	}
	got.IDs = p.ids[first:len(p.ids):len(p.ids)]
	*m = got
	return true
}

// value reads the text before, such as a field's name, and after it a string without escapes, which it stores in to.
// It reports whether both come next in the line.
func (p *snapshotParser) value(before string, to *string) bool {
	rest, ok := strings.CutPrefix(p.rest, before)
	if !ok || rest == "" || rest[0] != '"' {
		return false
	}
	s, rest, ok := strings.Cut(rest[1:], `"`)
	if !ok || !exactjson.IsPlain(s) {
		return false
	}
	*to, p.rest = s, rest
	return true
}
