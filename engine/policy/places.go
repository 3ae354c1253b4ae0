package policy

import (
	"strconv"
	"strings"
)

// A scanner finds the positions of keys and values in a document of valid TOML, because the TOML decoder
// returns values without positions and messages need them.
type scanner struct {
	text string // ends with a line feed
	at   int
	// found has the offsets of keys and list elements by path, such as "stage.0.before.1". A
	// path with "=" after it has the offset of the key's value.
	found map[string]int
}

// places returns the byte offsets of all keys and list elements of a document of valid TOML, by path; see the
// field found of [scanner].
func places(document string) map[string]int {
	s := scanner{text: document + "\n", found: map[string]int{}}
	section, lists := "", map[string]int{}
	for s.skip(" \t\r\n"); s.at < len(s.text); s.skip(" \t\r\n") {
		if s.text[s.at] != '[' {
			s.pair(section)
			continue
		}
		brackets := strings.Count(s.text[s.at:s.at+2], "[")
		s.at += brackets
		from := s.at
		section = s.key("")
		s.at += brackets
		if brackets == 2 {
			lists[section]++
			section = s.record(section, strconv.Itoa(lists[section]-1), from)
		}
	}
	return s.found
}

// record stores at as the offset of path.name, unless that path has an offset already, and returns path.name.
// For a path longer than any of a profile it stores nothing and returns path.
func (s *scanner) record(path, name string, at int) string {
	if len(path) > 200 {
		return path
	}
	path = strings.TrimPrefix(path+"."+name, ".")
	if _, ok := s.found[path]; !ok {
		s.found[path] = at
	}
	return path
}

// skip moves the position s.at in the TOML document forward past all of chars and past comments.
func (s *scanner) skip(chars string) {
	for ; s.at < len(s.text) && strings.IndexByte(chars+"#", s.text[s.at]) >= 0; s.at++ {
		if s.text[s.at] == '#' {
			s.to("\n")
		}
	}
}

// to moves the position s.at in the TOML document to the next occurrence of any of chars, which must exist.
func (s *scanner) to(chars string) { s.at += strings.IndexAny(s.text[s.at:], chars) }

func (s *scanner) pair(path string) {
	path = s.key(path)
	s.at++
	s.skip(" \t")
	s.found[path+"="] = s.at
	s.value(path)
}

// key reads a key, which may have dots, stores the offsets of its parts under path, and returns the path of
// the whole key. It moves s.at behind the key.
func (s *scanner) key(path string) string {
	for from := s.at; ; s.at++ {
		s.skip(" \t")
		start := s.at
		if c := s.text[s.at]; c == '"' || c == '\'' {
			s.quoted()
		} else {
			s.to(" \t.=]")
		}
		path = s.record(path, strings.Trim(s.text[start:s.at], `"'`), from)
		if s.skip(" \t"); s.text[s.at] != '.' {
			return path
		}
	}
}

func (s *scanner) value(path string) {
	switch c := s.text[s.at]; c {
	case '[', '{':
		s.at++
		for i := 0; ; i++ {
			if s.skip(" \t\r\n,"); s.text[s.at] == c+2 { // the closing bracket
				s.at++
				return
			}
			if c == '{' {
				s.pair(path)
			} else {
				s.value(s.record(path, strconv.Itoa(i), s.at))
			}
		}
	case '"', '\'':
		s.quoted()
	default:
		s.to(",]}#\n")
	}
}

// quoted moves the position s.at in the TOML document behind the quoted text that begins there.
func (s *scanner) quoted() {
	quote := s.text[s.at : s.at+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(s.text[s.at:], long) {
		quote = long
	}
	for s.at += len(quote); !strings.HasPrefix(s.text[s.at:], quote); s.at++ {
		if s.text[s.at] == '\\' && quote[0] == '"' {
			s.at++
		}
	}
	for s.at += len(quote); len(quote) == 3 && s.text[s.at] == quote[0]; s.at++ { // quotes may end the text
	}
}
