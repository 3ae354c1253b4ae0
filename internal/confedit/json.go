package confedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// Created is the text to give to [Append] if the configuration file does not exist. If the text is Created
// again after the last [Remove], the caller removes the file.
const Created = "{\n}\n"

// Append returns the JSON text with value added as the last element of an array. path names the object
// members that lead from the root to the array; Append makes those that are missing. Errors: text is no JSON
// object, or a member of path is of another kind.
func Append(text []byte, path []string, value any) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	d := &document{text: text, unit: unitOf(text, root), newline: newlineOf(text)}
	at, depth := root, 0
	for depth < len(path) {
		obj, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is no object", strings.Join(path[:depth], "."))
		}
		next := member(obj, path[depth])
		if next == nil {
			break
		}
		at, depth = next, depth+1
	}
	missing := path[depth:]
	if len(missing) == 0 {
		arr, ok := at.Value.(*hujson.Array)
		if !ok {
			return nil, fmt.Errorf("%s is no array", strings.Join(path, "."))
		}
		return d.insert(at, elements(arr), depth+1, func(string, bool) ([]byte, error) { return encode(value) })
	}
	obj, ok := at.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no object", strings.Join(path[:depth], "."))
	}
	return d.insert(at, members(obj), depth+1, func(indent string, oneLine bool) ([]byte, error) { return d.nest(missing, value, indent, oneLine) })
}

// Remove returns the JSON text without the elements of an array for which match returns true. path names the
// object members that lead from the root to the array. Remove also removes objects and arrays that [Append]
// made and that are empty now. A missing array is no error.
func Remove(text []byte, path []string, match func(element []byte) bool) ([]byte, error) {
	for {
		root, err := parse(text)
		if err != nil {
			return nil, err
		}
		trail, ok := follow(root, path)
		if !ok {
			return text, nil
		}
		arr, ok := trail[len(trail)-1].value.Value.(*hujson.Array)
		if !ok {
			return text, nil
		}
		spans, i := elements(arr), -1
		for n := range arr.Elements {
			if match(standard(text, spans[n])) {
				i = n
			}
		}
		if i < 0 {
			return text, nil
		}
		text = cut(text, trail, spans, i)
	}
}

// Elements returns the elements of an array, as JSON without comments. path names the object members that
// lead from the root to the array. A missing array has no elements. Errors: text is no JSON object.
func Elements(text []byte, path []string) (all [][]byte, err error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	trail, ok := follow(root, path)
	if !ok {
		return nil, nil
	}
	if arr, ok := trail[len(trail)-1].value.Value.(*hujson.Array); ok {
		for _, s := range elements(arr) {
			all = append(all, standard(text, s))
		}
	}
	return all, nil
}

func parse(text []byte) (*hujson.Value, error) {
	root, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		return nil, errors.New("the file holds no JSON object")
	}
	return &root, nil
}

// A span is a range of bytes of the JSON text, from start to before end, that holds an array's element, or an
// object's member with its name.
type span struct{ start, end int }

func elements(arr *hujson.Array) (all []span) {
	for _, e := range arr.Elements {
		all = append(all, span{e.StartOffset, e.EndOffset})
	}
	return all
}

func members(obj *hujson.Object) (all []span) {
	for _, m := range obj.Members {
		all = append(all, span{m.Name.StartOffset, m.Value.EndOffset})
	}
	return all
}

func member(obj *hujson.Object, name string) *hujson.Value {
	for i := range obj.Members {
		if l, ok := obj.Members[i].Name.Value.(hujson.Literal); ok && l.String() == name {
			return &obj.Members[i].Value
		}
	}
	return nil
}

// A place is one step on the path from the root of a JSON text to a value: the value reached, and the byte
// ranges of all members of the object that holds it. The member with the index at leads to the value.
type place struct {
	value    *hujson.Value
	siblings []span
	at       int
}

// follow returns the values of a JSON text to which the member names of path lead, from the first one below
// root to the last. ok is false if a member is missing.
func follow(root *hujson.Value, path []string) (trail []place, ok bool) {
	v := root
	for _, name := range path {
		obj, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil, false
		}
		next := member(obj, name)
		if next == nil {
			return nil, false
		}
		p := place{value: next, siblings: members(obj)}
		for i := range obj.Members {
			if &obj.Members[i].Value == next {
				p.at = i
			}
		}
		trail, v = append(trail, p), next
	}
	return trail, true
}

// cut returns text without the element i of the array or object that trail, the result of [follow], leads to;
// spans are the byte ranges of its elements. If the element was the only one and [Append] made the container,
// cut removes the container instead, and so on upwards.
func cut(text []byte, trail []place, spans []span, i int) []byte {
	for len(spans) == 1 && len(trail) > 0 {
		last := trail[len(trail)-1]
		open := last.value.StartOffset
		if lead := text[open+1 : spans[0].start]; !blank(lead) || !bytes.ContainsRune(lead, '\n') {
			break // the container was there before
		}
		spans, i, trail = last.siblings, last.at, trail[:len(trail)-1]
	}
	s := spans[i]
	switch {
	case i > 0:
		return cutAfter(text, spans[i-1].end, s)
	case len(spans) > 1:
		end := commaAfter(text, s.end) + 1
		if blank(text[end:spans[1].start]) { // the next takes its place
			end = spans[1].start
		}
		return splice(text, s.start, end, nil)
	}
	end := s.end
	if c := commaAfter(text, s.end); c >= 0 {
		end = c + 1
	}
	start := lineBefore(text, s.start)
	return splice(text, start, end, nil)
}

// cutAfter returns the JSON text without the array element or object member at s, and without the comma and
// the line break that belong to it. before is the offset at which the preceding one ends.
func cutAfter(text []byte, before int, s span) []byte {
	end := s.end
	trailing := commaAfter(text, s.end)
	start := lineBefore(text, s.start)
	if trailing >= 0 {
		return splice(text, start, trailing+1, nil) // the comma before is the new trailing one, or separates what follows
	}
	text = splice(text, start, end, nil)
	if c := commaAfter(text, before); c >= 0 {
		text = splice(text, c, c+1, nil)
	}
	return text
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// lineBefore returns the offset of the line break before start, if only blanks lie between the two, and
// otherwise start. An element that begins its line is removed from there on, with its indent.
func lineBefore(text []byte, start int) int {
	i := start
	for i > 0 && (text[i-1] == ' ' || text[i-1] == '\t') {
		i--
	}
	if i > 0 && text[i-1] == '\n' {
		i--
		if i > 0 && text[i-1] == '\r' {
			i--
		}
		return i
	}
	return start
}

// commaAfter returns the offset of the comma after the JSON value that ends at the offset at. Blanks and
// comments may come before the comma. It returns -1 if anything else follows.
func commaAfter(text []byte, at int) int {
	for at < len(text) {
		switch c := text[at]; {
		case c == ',':
			return at
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			at++
		case bytes.HasPrefix(text[at:], []byte("//")):
			at += lineLength(text[at:])
		case bytes.HasPrefix(text[at:], []byte("/*")):
			n := bytes.Index(text[at:], []byte("*/"))
			if n < 0 {
				return -1
			}
			at += n + 2
		default:
			return -1
		}
	}
	return -1
}

// lineLength returns the number of bytes of text before its first line break, or all of them if it has none:
// the length of a // comment that begins there.
func lineLength(text []byte) int {
	n := bytes.IndexByte(text, '\n')
	if n < 0 {
		return len(text)
	}
	if n > 0 && text[n-1] == '\r' {
		n--
	}
	return n
}

func splice(text []byte, start, end int, with []byte) []byte {
	out := make([]byte, 0, len(text)+len(with))
	out = append(out, text[:start]...)
	out = append(out, with...)
	return append(out, text[end:]...)
}

// standard returns the part of the text in the range s as standard JSON, without comments and trailing
// commas, so that encoding/json can decode it.
func standard(text []byte, s span) []byte {
	v, err := hujson.Standardize(bytes.Clone(text[s.start:s.end])) //nolint:misspell // the library's name
	if err != nil {
		return nil // it was parsed with the whole
	}
	return v
}

// A document is the text of a JSON file to which [Append] adds a value, and how the file is formatted: the
// indent of one level and the line break.
type document struct {
	text          []byte
	unit, newline string
}

// insert adds an element to a JSON array, or a member to an object, after the last one. spans are the byte
// ranges of the present ones, and depth is the number of levels that enclose them. item returns the text of
// the new one, for lines with this indent or for one line.
func (d *document) insert(container *hujson.Value, spans []span, depth int, item func(indent string, oneLine bool) ([]byte, error)) ([]byte, error) {
	if len(spans) == 0 {
		open := container.StartOffset + 1
		if depth == 1 && string(d.text) == Created { // its line break stays where it is, before the end
			text, err := item(d.unit, false)
			return splice(d.text, open, open, append([]byte(d.newline+d.unit), text...)), err
		}
		text, err := item("", true)
		return splice(d.text, open, open, text), err
	}
	indent := d.indentOf(spans[0].start, depth)
	text, err := item(indent, false)
	if err != nil {
		return nil, err
	}
	text = append([]byte(d.newline+indent), text...)
	last := spans[len(spans)-1].end
	out, at := d.text, last
	if c := commaAfter(out, last); c >= 0 {
		at = c + 1
		text = append(text, ',')
	} else {
		out = splice(out, last, last, []byte(","))
		at++
	}
	return splice(out, endOfComment(out, at), endOfComment(out, at), text), nil
}

// endOfComment returns the offset at which a // comment ends that begins after the offset at on the same
// line, or at if there is none. A new element goes behind the comment of the element before.
func endOfComment(text []byte, at int) int {
	i := at
	for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	line := text[i : i+lineLength(text[i:])]
	if bytes.HasPrefix(line, []byte("//")) {
		return i + len(line)
	}
	return at
}

// indentOf returns the indent of the line that begins with the array element or object member at start. If
// that one does not begin a line, it returns the usual indent for depth levels.
func (d *document) indentOf(start, depth int) string {
	i := start
	for i > 0 && (d.text[i-1] == ' ' || d.text[i-1] == '\t') {
		i--
	}
	if i > 0 && d.text[i-1] == '\n' {
		return string(d.text[i:start])
	}
	return strings.Repeat(d.unit, depth)
}

// nest returns the text of a new object member named by the first element of path. Its value is an object
// with a member named by the next element, and so on; the last value is an array with value as its only
// element. indent is that of the member's line; with oneLine the text has only the line breaks by which
// [Remove] recognises it.
func (d *document) nest(path []string, value any, indent string, oneLine bool) ([]byte, error) {
	name, err := encode(path[0])
	if err != nil {
		return nil, err
	}
	inner := indent + d.unit
	var item []byte
	open, end := "{", "}"
	if len(path) > 1 {
		item, err = d.nest(path[1:], value, inner, oneLine)
	} else {
		open, end = "[", "]"
		item, err = encode(value)
	}
	if err != nil {
		return nil, err
	}
	if oneLine {
		// A line break tells the containers made here from those that were there.
		return fmt.Appendf(nil, "%s: %s%s%s%s", name, open, d.newline, item, end), nil
	}
	return fmt.Appendf(nil, "%s: %s%s%s%s%s%s%s", name, open, d.newline, inner, item, d.newline, indent, end), nil
}

// encode returns value as JSON in one line, to be inserted into the configuration file.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// unitOf returns the indent that the file uses for one level: that of the first member of the root object, or
// two spaces.
func unitOf(text []byte, root *hujson.Value) string {
	d := &document{text: text, unit: "  "}
	if obj, ok := root.Value.(*hujson.Object); ok && len(obj.Members) > 0 {
		if indent := d.indentOf(obj.Members[0].Name.StartOffset, 1); indent != "" {
			return indent
		}
	}
	return d.unit
}

func newlineOf(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}
