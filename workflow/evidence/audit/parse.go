package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
)

// Parse returns the record in a line of an evidence log. The line must be canonical JSON (RFC 8785) without
// unknown fields.
func Parse(line []byte) (Record, error) {
	var s scanner
	return s.record(line)
}

// typeField precedes the type of a record in each canonical line of an evidence log.
var typeField = []byte(`,"type":"`)

// TypeOf returns the type of the record in a line of an evidence log, without parsing the rest; "" if the line has
// none. It does not check that the line is a record.
func TypeOf(line []byte) string {
	// Only the number "up" follows the type, and a text in front of it has no quote that is not escaped.
	i := bytes.LastIndex(line, typeField)
	if i < 0 {
		return ""
	}
	kind, _, _ := bytes.Cut(line[i+len(typeField):], []byte(`"`))
	return string(kind)
}

// ParseAll returns the records in lines, the lines of an evidence log. Several processors share the work. bad
// is the number of the first line that is no record, -1 if there is none.
func ParseAll(lines [][]byte) (records []Record, bad int) {
	records = make([]Record, len(lines))
	bad = inParts(len(lines), func(from, to int) int {
		var s scanner
		for i := from; i < to; i++ {
			var err error
			if records[i], err = s.record(lines[i]); err != nil {
				return i
			}
		}
		return -1
	})
	return records, bad
}

// partSize is the least number of lines of an evidence log for which inParts uses one more processor.
const partSize = 1000

// inParts checks numbered lines of an evidence log on several processors: it calls check for parts of the
// numbers below n, at the same time. check returns the first number in its part whose line is wrong, or -1;
// inParts returns the first of all parts.
func inParts(n int, check func(from, to int) int) int {
	parts := max(min(runtime.GOMAXPROCS(0), n/partSize), 1)
	found := make([]int, parts)
	var all sync.WaitGroup
	for p := range parts {
		all.Go(func() { found[p] = check(p*n/parts, (p+1)*n/parts) })
	}
	all.Wait()
	for _, i := range found {
		if i >= 0 {
			return i
		}
	}
	return -1
}

// strict parses a line of an evidence log with the JSON library: it takes each canonical line, and nothing
// else. The faster scanner leaves unusual lines to it.
func strict(line []byte) (r Record, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if !IsCanonical(line) {
		return r, errors.New("the record is not canonical JSON")
	}
	return r, nil
}

// A scanner parses canonical lines of an evidence log in one pass, faster than the JSON library. It knows the
// usual ones: strings of ASCII without escapes, integers, booleans, lists and objects. Any other line it
// passes to strict.
type scanner struct {
	text   []byte
	at     int
	usual  bool
	names  map[string]string // strings that were seen before
	values map[string]any    // the same as values
}

// Bounds of the strings that a scanner of an evidence log remembers to allocate equal ones once: maxNames is
// their number, maxName the length of each in bytes. Beyond them each string is allocated.
const (
	maxNames = 4096
	maxName  = 48
)

// record parses line, one whole line of an evidence log, into a [Record].
func (s *scanner) record(line []byte) (Record, error) {
	if s.names == nil {
		s.names, s.values = map[string]string{}, map[string]any{}
	}
	s.text, s.at, s.usual = line, 0, true
	r := Record{}
	s.expect(`{"boot":`)
	r.Boot = s.name()
	s.expect(`,"data":`)
	r.Data = s.object(0)
	s.expect(`,"prev":`)
	r.Prev = string(s.quoted())
	s.expect(`,"sandbox":`)
	r.Sandbox = s.name()
	s.expect(`,"seq":`)
	r.Seq = s.integer()
	s.expect(`,"time":`)
	r.Time = string(s.quoted())
	s.expect(`,"type":`)
	r.Type = s.name()
	s.expect(`,"up":`)
	r.Up = s.integer()
	s.expect(`}`)
	if !s.usual || s.at != len(line) {
		return strict(line)
	}
	return r, nil
}

// expect moves past text, which must come next in the line of the evidence log; otherwise the scanner leaves
// the line to strict, the JSON library.
func (s *scanner) expect(text string) {
	if len(s.text)-s.at < len(text) || string(s.text[s.at:s.at+len(text)]) != text {
		s.usual = false
		return
	}
	s.at += len(text)
}

// next returns the next byte of the line of the evidence log without moving past it, 0 at the end.
func (s *scanner) next() byte {
	if !s.usual || s.at >= len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// quoted moves past a JSON string in the line of the evidence log and returns the bytes between its quotes.
func (s *scanner) quoted() []byte {
	if s.next() != '"' {
		s.usual = false
		return nil
	}
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			b := s.text[s.at+1 : i]
			s.at = i + 1
			return b
		case c < ' ' || c > '~' || c == '\\':
			s.usual = false
			return nil
		}
	}
	s.usual = false
	return nil
}

// name returns the next JSON string in the line of the evidence log. If an equal string was seen before, it
// returns that one and allocates nothing.
func (s *scanner) name() string {
	b := s.quoted()
	if known, ok := s.names[string(b)]; ok {
		return known
	}
	text := string(b)
	if len(b) <= maxName && len(s.names) < maxNames {
		s.names[text] = text
	}
	return text
}

// integer returns the next JSON number in the line of the evidence log if that is a canonical integer of at
// most 15 digits.
func (s *scanner) integer() int64 {
	negative := s.next() == '-'
	if negative {
		s.at++
	}
	from, n := s.at, int64(0)
	for c := s.next(); c >= '0' && c <= '9'; c = s.next() {
		n = n*10 + int64(c-'0')
		if s.at++; s.at-from > 15 {
			break
		}
	}
	digits := s.at - from
	if digits == 0 || digits > 15 || s.text[from] == '0' && (digits > 1 || negative) {
		s.usual = false
	}
	if negative {
		return -n
	}
	return n
}

// maxDepth is how deep objects and lists may be nested in a line of an evidence log that a scanner parses. It
// leaves a deeper line to strict, the JSON library.
const maxDepth = 100

// value returns the next JSON value in the line of the evidence log, in the types that encoding/json gives
// it. depth is how deep it is nested.
func (s *scanner) value(depth int) any {
	switch c := s.next(); {
	case c == '"':
		b := s.quoted()
		if known, ok := s.values[string(b)]; ok {
			return known
		}
		text := string(b)
		var v any = text
		if len(b) <= maxName && len(s.values) < maxNames {
			s.values[text] = v
		}
		return v
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.list(depth)
	case c == 't':
		s.expect("true")
		return true
	case c == 'f':
		s.expect("false")
		return false
	case c == '-' || c >= '0' && c <= '9':
		n := s.integer()
		if c := s.next(); c == '.' || c == 'e' || c == 'E' {
			s.usual = false
		}
		return float64(n)
	}
	s.usual = false
	return nil
}

// object returns the next JSON object in the line of the evidence log. Its names must be in ascending order,
// as in canonical JSON. depth is how deep it is nested.
func (s *scanner) object(depth int) map[string]any {
	s.expect("{")
	m := map[string]any{}
	if s.next() == '}' {
		s.at++
		return m
	}
	if depth > maxDepth {
		s.usual = false
	}
	for last, first := "", true; s.usual; first = false {
		name := s.name()
		if !first && name <= last {
			s.usual = false
			break
		}
		last = name
		s.expect(":")
		m[name] = s.value(depth + 1)
		if s.next() != ',' {
			break
		}
		s.at++
	}
	s.expect("}")
	return m
}

// list returns the next JSON list in the line of the evidence log. depth is how deep it is nested.
func (s *scanner) list(depth int) []any {
	s.expect("[")
	l := []any{}
	if s.next() == ']' {
		s.at++
		return l
	}
	if depth > maxDepth {
		s.usual = false
	}
	for s.usual {
		l = append(l, s.value(depth+1))
		if s.next() != ',' {
			break
		}
		s.at++
	}
	s.expect("]")
	return l
}
