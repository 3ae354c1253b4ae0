package catalog

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/proc"
)

// Package json examines the types of a record by reflection before it encodes or decodes one, which takes most of a
// millisecond in each process. The record of most sandboxes has only the fields that [usualForm.record] lists, so
// this file reads and writes those records without package json, in exactly its form. Package json reads and writes
// all others.

// encodeUsual returns r as JSON text with the line breaks and the indentation of package json, or false if r has a
// field or a text for which that package is needed.
func encodeUsual(r *Record) (text []byte, ok bool) {
	rest := *r
	rest.Format, rest.ID, rest.Name, rest.State, rest.Created, rest.Life, rest.Workspace, rest.BareWorkspace = 0, "", "", "", time.Time{}, nil, "", false
	rest.Ephemeral, rest.Trees, rest.At, rest.Policy.Network, rest.Policy.Limits.RemoveAfter = false, nil, "", "", 0
	rest.Supervisor, rest.Untouched, rest.Next, rest.free = nil, false, 0, span{}
	if len(r.Trees) == 0 || !reflect.ValueOf(rest).IsZero() {
		return nil, false
	}
	f := usualForm{text: make([]byte, 0, 2<<10), writes: true, ok: true}
	f.record(r)
	return f.text, f.ok
}

// decodeUsual returns the record that encodeUsual has encoded as text, or false for a text of another form.
func decodeUsual(text []byte) (*Record, bool) {
	f := usualForm{rest: string(text), ok: true}
	r := new(Record)
	f.record(r)
	return r, f.ok && f.rest == "\n"
}

// A usualForm is the JSON form of a usual record, and the place in it that a reader or a writer has reached. Each
// method appends one value to text if writes is set, and otherwise takes it from the beginning of rest. before is the
// text in front of the value. After a value or a text of another form, ok is false, and the result has no meaning.
type usualForm struct {
	text   []byte
	rest   string
	writes bool
	ok     bool
}

// record reads or writes the fields of r, in the order of their declaration.
func (f *usualForm) record(r *Record) {
	f.integer("{\n  \"format\": ", &r.Format)
	f.string(",\n  \"id\": ", &r.ID)
	f.string(",\n  \"name\": ", &r.Name)
	f.string(",\n  \"state\": ", (*string)(&r.State))
	f.time(",\n  \"created\": ", &r.Created)
	if f.has(",\n  \"life\": {", r.Life != nil) {
		if !f.writes {
			r.Life = new(Life)
		}
		f.life(r.Life)
	}
	f.string(",\n  \"workspace\": ", &r.Workspace)
	f.flag(",\n  \"bare_workspace\": true", &r.BareWorkspace)
	f.flag(",\n  \"ephemeral\": true", &r.Ephemeral)
	f.trees(&r.Trees)
	if f.has(",\n  \"at\": ", r.At != "") {
		f.string("", &r.At)
	}
	f.string(",\n  \"policy\": {\n    \"network\": ", &r.Policy.Network)
	if f.has(",\n    \"limits\": {\n      \"remove_after_ns\": ", r.Policy.Limits.RemoveAfter != 0) { // as an agent's sandbox has
		f.duration("", &r.Policy.Limits.RemoveAfter)
		f.word("\n    }")
	}
	f.word("\n  }")
	if f.has(",\n  \"keeper\": {", r.Supervisor != nil) {
		if !f.writes {
			r.Supervisor = new(proc.Process)
		}
		f.process(r.Supervisor)
	}
	f.flag(",\n  \"untouched\": true", &r.Untouched)
	f.integer(",\n  \"next\": ", &r.Next)
	f.word("\n}")
}

// process reads or writes the fields of p.
func (f *usualForm) process(p *proc.Process) {
	start := int64(p.Start)
	f.integer("\n    \"PID\": ", &p.PID)
	f.number(",\n    \"Start\": ", &start)
	f.string(",\n    \"Boot\": ", &p.Boot)
	f.word("\n  }")
	p.Start, f.ok = uint64(start), f.ok && start >= 0
}

// life reads or writes the fields of l.
func (f *usualForm) life(l *Life) {
	f.duration("\n    \"age_ns\": ", &l.Age)
	f.time(",\n    \"at\": {\n      \"wall\": ", &l.At.Wall)
	if f.has(",\n      \"boot\": ", l.At.Boot != "") {
		f.string("", &l.At.Boot)
	}
	f.duration(",\n      \"up_ns\": ", &l.At.Up)
	f.flag(",\n      \"unsure\": true", &l.At.Unsure)
	f.word("\n    }\n  }")
}

// trees reads or writes the list of a record's trees, which is not empty.
func (f *usualForm) trees(list *[]Tree) {
	f.word(",\n  \"trees\": [")
	for i, before := 0, "\n    {"; f.has(before, i < len(*list)); i, before = i+1, ",\n    {" {
		if !f.writes {
			*list = append(*list, Tree{})
		}
		t := &(*list)[i]
		f.string("\n      \"path\": ", &t.Path)
		f.string(",\n      \"driver\": ", &t.Driver)
		if f.has(",\n      \"reason\": ", t.Reason != "") {
			f.string("", &t.Reason)
		}
		f.string(",\n      \"base\": ", (*string)(&t.Base))
		f.string(",\n      \"fork\": ", (*string)(&t.Fork))
		f.time(",\n      \"taken\": ", &t.Taken)
		if t.Frozen = f.has(",\n      \"frozen\": true", t.Frozen); !t.Frozen {
			f.word(",\n      \"frozen\": false")
		}
		f.flag(",\n      \"mounted\": true", &t.Mounted)
		f.word("\n    }")
	}
	f.word("\n  ]")
}

// has reports whether word comes next: for a writer, which then appends it, whether there is set.
func (f *usualForm) has(word string, there bool) bool {
	if !f.writes {
		there = f.ok && strings.HasPrefix(f.rest, word)
	}
	if there {
		f.word(word)
	}
	return there && f.ok
}

// word reads or writes a text that is the same in all records.
func (f *usualForm) word(word string) {
	if f.writes {
		f.text = append(f.text, word...)
		return
	}
	rest, found := strings.CutPrefix(f.rest, word)
	f.rest, f.ok = rest, f.ok && found
}

// flag reads or writes word, which is there if the value at to is true.
func (f *usualForm) flag(word string, to *bool) { *to = f.has(word, *to) }

func (f *usualForm) string(before string, to *string) {
	f.word(before)
	if f.writes {
		f.ok = f.ok && exactjson.IsPlain(*to)
		f.text = append(append(append(f.text, '"'), *to...), '"')
		return
	}
	f.word(`"`)
	s, rest, found := strings.Cut(f.rest, `"`)
	*to, f.rest, f.ok = s, rest, f.ok && found && exactjson.IsPlain(s)
}

func (f *usualForm) time(before string, to *time.Time) {
	text := ""
	if f.writes {
		text = to.Format(time.RFC3339Nano)
		f.ok = f.ok && to.Year() >= 0 && to.Year() < 10000
	}
	f.string(before, &text)
	if !f.writes {
		var err error
		*to, err = time.Parse(time.RFC3339Nano, text)
		f.ok = f.ok && err == nil && to.Format(time.RFC3339Nano) == text // package json takes no other form
	}
}

func (f *usualForm) duration(before string, to *time.Duration) {
	n := int64(*to)
	f.number(before, &n)
	*to = time.Duration(n)
}

func (f *usualForm) integer(before string, to *int) {
	n := int64(*to)
	f.number(before, &n)
	*to = int(n)
}

func (f *usualForm) number(before string, to *int64) {
	f.word(before)
	if f.writes {
		f.text = strconv.AppendInt(f.text, *to, 10)
		return
	}
	end := 0
	for end < len(f.rest) && (f.rest[end] == '-' || f.rest[end] >= '0' && f.rest[end] <= '9') {
		end++
	}
	n, err := strconv.ParseInt(f.rest[:end], 10, 64)
	f.ok = f.ok && err == nil && strconv.FormatInt(n, 10) == f.rest[:end] // no zeros in front
	*to, f.rest = n, f.rest[end:]
}
