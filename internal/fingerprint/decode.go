package fingerprint

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how many encodings within one another a search decodes.
const maxDepth = 3

// A decoder finds parts of a text that are in one encoding, and passes each of them, decoded, to found, with the place
// in the text where the part begins and ends.
type decoder struct {
	name   string
	decode func(text []byte, found found)
}

type found func(plain []byte, from, to int)

// decoders are the encodings of text in which a search finds labelled content.
var decoders = []decoder{
	{"escaped as in JSON", unescape},
	{"escaped as in a URL", unquote},
	{"in hexadecimal", unhex},
	{"in base64", unbase64},
}

// unescape decodes the escapes of strings of JSON, which those of most languages have too: \n, \", \u0041, \x41.
func unescape(text []byte, found found) {
	if bytes.IndexByte(text, '\\') < 0 {
		return
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			out = append(out, c)
			continue
		}
		i++
		switch c = text[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u', 'x':
			r, n := escapedRune(text[i:])
			if n == 0 {
				out = append(out, '\\', c)
				continue
			}
			if c == 'x' {
				out = append(out, byte(r))
			} else {
				out = utf8.AppendRune(out, r)
			}
			i += n - 1
		default:
			out = append(out, c)
		}
	}
	found(out, 0, len(text))
}

// escapedRune returns the character of an escape that begins text without its backslash, as u0041 or x41, and the
// length of the escape; 0 if it is none. Two escapes of UTF-16 may be one character.
func escapedRune(text []byte) (r rune, n int) {
	digits := 4
	if text[0] == 'x' {
		digits = 2
	}
	read := func(b []byte) (rune, bool) {
		if len(b) < 1+digits {
			return 0, false
		}
		v, err := strconv.ParseUint(string(b[1:1+digits]), 16, 32)
		return rune(v), err == nil
	}
	r, ok := read(text)
	if !ok {
		return 0, 0
	}
	n = 1 + digits
	if utf16.IsSurrogate(r) && len(text) > n+1 && text[n] == '\\' && text[n+1] == 'u' {
		if second, ok := read(text[n+1:]); ok {
			return utf16.DecodeRune(r, second), n + 2 + digits
		}
	}
	return r, n
}

// unquote decodes the escapes of a URL: %41, and in a form + for a blank.
func unquote(text []byte, found found) {
	plus := bytes.IndexByte(text, '+') >= 0
	if bytes.IndexByte(text, '%') < 0 && !plus {
		return
	}
	out := make([]byte, 0, len(text))
	changed := false
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if v, ok := hexByte(text[i+1], text[i+2]); ok {
				out = append(out, v)
				i += 2
				changed = true
				continue
			}
		}
		out = append(out, text[i])
	}
	if changed {
		found(out, 0, len(text))
	}
	if !plus {
		return
	}
	form := out[:0:0]
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '+':
			form = append(form, ' ')
			continue
		case text[i] == '%' && i+2 < len(text):
			if v, ok := hexByte(text[i+1], text[i+2]); ok {
				form = append(form, v)
				i += 2
				continue
			}
		}
		form = append(form, text[i])
	}
	found(form, 0, len(text))
}

func hexByte(a, b byte) (byte, bool) {
	high, low := digit(a), digit(b)
	return byte(high<<4 | low), high >= 0 && low >= 0
}

func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// unhex decodes each run of hexadecimal digits, which line ends and blanks may divide, from its first and from its
// second digit.
func unhex(text []byte, found found) {
	runs(text, 2*minValue, digit, " :\r\n", func(digits []byte, from, to int) {
		for skip := range 2 {
			out := make([]byte, 0, len(digits)/2)
			for i := skip; i+1 < len(digits); i += 2 {
				out = append(out, digits[i]<<4|digits[i+1])
			}
			found(out, from, to)
		}
	})
}

// unbase64 decodes each run of letters of base64, of either alphabet, which line ends may divide, from each of its
// first four letters.
func unbase64(text []byte, found found) {
	runs(text, minValue*4/3+1, letter, "\r\n", func(letters []byte, from, to int) {
		for skip := range min(4, len(letters)) {
			out := make([]byte, 0, len(letters)*3/4)
			rest := letters[skip:]
			for ; len(rest) >= 4; rest = rest[4:] {
				v := uint32(rest[0])<<18 | uint32(rest[1])<<12 | uint32(rest[2])<<6 | uint32(rest[3])
				out = append(out, byte(v>>16), byte(v>>8), byte(v))
			}
			switch len(rest) {
			case 2:
				out = append(out, rest[0]<<2|rest[1]>>4)
			case 3:
				out = append(out, rest[0]<<2|rest[1]>>4, rest[1]<<4|rest[2]>>2)
			}
			found(out, from, to)
		}
	})
}

func letter(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '+', c == '-':
		return 62
	case c == '/', c == '_':
		return 63
	}
	return -1
}

// runs passes to found the values of each run of at least least bytes of text for which value is not negative. Bytes
// of between may divide a run.
func runs(text []byte, least int, value func(byte) int, between string, found found) {
	var table [256]int8 // -1 ends a run, -2 divides it
	for c := range table {
		table[c] = int8(value(byte(c)))
	}
	for _, c := range []byte(between) {
		table[c] = -2
	}
	start, count := 0, 0
	end := func(at int) {
		if count >= least {
			run := make([]byte, 0, count)
			for _, c := range text[start:at] {
				if v := table[c]; v >= 0 {
					run = append(run, byte(v))
				}
			}
			found(run, start, at)
		}
		count = 0
	}
	for i, c := range text {
		switch v := table[c]; {
		case v >= 0:
			if count == 0 {
				start = i
			}
			count++
		case v == -1 && count > 0:
			end(i)
		}
	}
	end(len(text))
}
