package supervise

import (
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/exactjson"
)

// Package json examines all types of a message by reflection at its first use in a process, which takes a tenth of a
// millisecond. Reading and writing the environment takes it a tenth of a short command's time. This file reads and
// writes the usual messages without package json, in the same form; package json reads and writes all others.

// The usual replies, and the beginning and end of a [Request] with nothing but a Checkpoint.
const (
	frozenText  = `{"frozen":true}`
	startedText = `{"started":true}`

	checkpointBegin, checkpointEnd = `{"checkpoint":"`, `"}`
)

// encodeExec returns the JSON text of a request to run a command.
func encodeExec(w *execRequest) ([]byte, error) {
	usual := !w.Detach && !w.Prove && w.TTY == nil && w.Stops != nil && len(w.Args) > 0 && len(w.Env) > 0 && len(w.Streams) > 0 && exactjson.IsPlain(w.Dir)
	for _, list := range [][]string{w.Args, w.Env} {
		for _, s := range list {
			usual = usual && exactjson.IsPlain(s)
		}
	}
	if !usual {
		return exactjson.Encode(Request{Exec: w})
	}
	text := append(make([]byte, 0, 2<<10), `{"exec":{"args":[`...)
	text = append(appendTexts(text, w.Args), `],"env":[`...)
	text = append(append(append(appendTexts(text, w.Env), `],"dir":"`...), w.Dir...), `","streams":[`...)
	for i, n := range w.Streams {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	text = append(text, ']')
	if w.EndAtTTL {
		text = append(text, `,"end_at_ttl":true`...)
	}
	if w.Again {
		text = append(text, `,"again":true`...)
	}
	text = strconv.AppendInt(append(text, `,"stops":`...), *w.Stops, 10)
	return append(text, "}}"...), nil
}

// appendTexts appends the strings of list as JSON to text, separated by commas. None needs escaping.
func appendTexts(text []byte, list []string) []byte {
	for i, s := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, '"'), s...), '"')
	}
	return text
}

// decodeRequest reads the JSON text of a client's request into r. Errors: those of [exactjson.Decode].
func decodeRequest(text []byte, r *Request) error {
	f := usualText{rest: string(text), ok: true}
	var w execRequest
	f.word(`{"exec":{"args":[`)
	w.Args = f.texts()
	f.word(`,"env":[`)
	w.Env = f.texts()
	f.word(`,"dir":"`)
	w.Dir = f.text()
	f.word(`,"streams":[`)
	for before := ""; f.ok && !f.has("]"); before = "," {
		f.word(before)
		w.Streams = append(w.Streams, int(f.number()))
	}
	w.EndAtTTL = f.has(`,"end_at_ttl":true`)
	w.Again = f.has(`,"again":true`)
	f.word(`,"stops":`)
	stops := f.number()
	f.word("}}")
	if f.ok && f.rest == "" && len(w.Args) > 0 && len(w.Env) > 0 && len(w.Streams) > 0 {
		w.Stops = &stops
		*r = Request{Exec: &w}
		return nil
	}
	return exactjson.Decode(text, r)
}

// A usualText reads a text that encodeExec may have written. rest is the unread part. ok is false once the text
// differs.
type usualText struct {
	rest string
	ok   bool
}

// word reads a text that is the same in all requests.
func (f *usualText) word(word string) {
	f.ok = f.ok && f.has(word)
}

// has reads word if it comes next, and reports whether it does.
func (f *usualText) has(word string) (found bool) {
	f.rest, found = strings.CutPrefix(f.rest, word)
	return found
}

// text reads the rest of a string, after its quotation mark.
func (f *usualText) text() string {
	s, rest, found := strings.Cut(f.rest, `"`)
	f.rest, f.ok = rest, f.ok && found && exactjson.IsPlain(s)
	return s
}

// texts reads the rest of a list of strings, after its bracket.
func (f *usualText) texts() (list []string) {
	for before := `"`; f.ok && !f.has("]"); before = `,"` {
		f.word(before)
		list = append(list, f.text())
	}
	return list
}

// number reads a number, in the only form in which encodeExec writes it.
func (f *usualText) number() int64 {
	end := 0
	for end < len(f.rest) && f.rest[end] >= '0' && f.rest[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(f.rest[:end], 10, 64)
	f.ok = f.ok && err == nil && strconv.FormatInt(n, 10) == f.rest[:end]
	f.rest = f.rest[end:]
	return n
}
