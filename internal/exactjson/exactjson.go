// Package exactjson encodes and decodes JSON as package encoding/json does, but preserves strings that are not
// valid UTF-8.
//
// Paths, arguments and variables on Linux are any bytes. Package encoding/json replaces each invalid byte by
// U+FFFD, so that a stored path names another file. The engine's records and its messages between processes of
// snapfs therefore go through this package. Output for other programs does not: see docs/json.md.
//
// Valid UTF-8 text has the same form as in encoding/json, in both directions. Another string is written in the
// form of [Escape].
package exactjson

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Escape returns s, such as a path or an argument, as a string that JSON can hold. Valid UTF-8 stays unchanged.
// Other bytes become a NUL followed by their base 64; so does a string that starts with NUL.
func Escape(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, "\x00") {
		return s
	}
	return "\x00" + base64.StdEncoding.EncodeToString([]byte(s))
}

// Unescape returns the original form of s, a string that [Escape] returned.
func Unescape(s string) string {
	if code, ok := strings.CutPrefix(s, "\x00"); ok {
		if b, err := base64.StdEncoding.DecodeString(code); err == nil {
			return string(b)
		}
	}
	return s
}

// IsPlain reports whether s between quotation marks is its own JSON form, since it has only printable ASCII without
// characters that package encoding/json escapes. Such a string can be read and written without that package.
func IsPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// Encode returns v as JSON in which [Decode] finds every string of v again, whatever its bytes. It does not look
// into values with a method that encodes them, such as times. v stays unchanged.
//
// Without a string that is not UTF-8, the text and the cost are those of package encoding/json.
func Encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil || !lossy(text) {
		return text, err
	}
	return json.Marshal(escaped(v))
}

// EncodeIndent is [Encode] with the line breaks and the indentation of package encoding/json.
func EncodeIndent(v any, prefix, indent string) ([]byte, error) {
	text, err := Encode(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, text, prefix, indent)
	return b.Bytes(), err
}

// Decode reads text, which [Encode] or a program without this package wrote, into the variable at v. Errors: those
// of package encoding/json.
func Decode(text []byte, v any) error {
	err := json.Unmarshal(text, v)
	if err == nil && HasEscapes(text) {
		convert(reflect.ValueOf(v), Unescape)
	}
	return err
}

// HasEscapes reports whether the JSON text may contain a string in the form of [Escape], which another package
// for JSON would not decode.
func HasEscapes(text []byte) bool { return bytes.Contains(text, []byte(`\u0000`)) }

// lossy reports whether text, which package json made, may lack bytes of a string or contain a string that looks
// escaped. Package json writes `\ufffd` only for an invalid byte; a valid U+FFFD is not escaped.
func lossy(text []byte) bool {
	return bytes.Contains(text, []byte(`\ufffd`)) || HasEscapes(text)
}

// escaped returns a copy of v in which each string is in the form of Escape.
func escaped(v any) any {
	to := reflect.ValueOf(&v)
	convert(to, Escape)
	return v
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// encodesItself reports whether package json leaves the encoding of values of type t to a method.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(marshaler) || p.Implements(textMarshaler)
}

// convert replaces each string that package json would encode, in the variable to which p points, by what change
// makes of it. It copies what the variable shares with others, such as the elements of a slice.
func convert(p reflect.Value, change func(string) string) {
	v := p.Elem()
	if !v.CanSet() || encodesItself(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(change(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				convertField(v.Field(i), change)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			convert(v.Index(i).Addr(), change)
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		same := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(same, v)
		for i := range same.Len() {
			convert(same.Index(i).Addr(), change)
		}
		v.Set(same)
	case reflect.Map:
		convertMap(v, change)
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			same := reflect.New(v.Elem().Type())
			same.Elem().Set(v.Elem())
			convert(same, change)
			if v.Kind() == reflect.Interface {
				same = same.Elem()
			}
			v.Set(same)
		}
	default: // numbers and truth values
	}
}

// convertField is convert for a field of a struct. An embedded struct of an unexported type cannot be set, but its
// exported fields can.
func convertField(v reflect.Value, change func(string) string) {
	if v.CanSet() {
		convert(v.Addr(), change)
		return
	}
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			convertField(v.Field(i), change)
		}
	}
}

// convertMap is convert for the keys and values of the map v.
func convertMap(v reflect.Value, change func(string) string) {
	if v.IsNil() {
		return
	}
	same := reflect.MakeMapWithSize(v.Type(), v.Len())
	for each := v.MapRange(); each.Next(); {
		key, value := reflect.New(v.Type().Key()), reflect.New(v.Type().Elem())
		key.Elem().Set(each.Key())
		value.Elem().Set(each.Value())
		convert(key, change)
		convert(value, change)
		same.SetMapIndex(key.Elem(), value.Elem())
	}
	v.Set(same)
}
