package policy

import (
	"strconv"
	"strings"
)

// A scanner finds positions in a document that is valid TOML: the decoder returns the values
// without positions, and no error for what is valid TOML and no profile.
type scanner struct {
	text string // ends with a line feed
	at   int
	// found has offsets by path, as in "stage.0.before.1": of a key, or of an element of a list.
	// A path with "=" behind it leads to the key's value.
	found map[string]int
}

// places returns the offsets of all keys and values of a valid document.
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

// record records the offset of the first part of this name at a path, and returns its own
// path. Below a very long path, which no profile has, the names are left out.
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

// skip moves over characters and comments.
func (s *scanner) skip(chars string) {
	for ; s.at < len(s.text) && strings.IndexByte(chars+"#", s.text[s.at]) >= 0; s.at++ {
		if s.text[s.at] == '#' {
			s.to("\n")
		}
	}
}

// to moves to the next of some characters.
func (s *scanner) to(chars string) { s.at += strings.IndexAny(s.text[s.at:], chars) }

func (s *scanner) pair(path string) {
	path = s.key(path)
	s.at++
	s.skip(" \t")
	s.found[path+"="] = s.at
	s.value(path)
}

// key moves to the end of a key, which may have dots, and returns its path below another.
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

// quoted moves over a text.
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
