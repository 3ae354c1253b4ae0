// Package exactjsontest checks that the records and messages of a package keep strings of any bytes. Only tests
// import it.
package exactjsontest

import (
	"encoding"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/snapfs/snapfs/internal/exactjson"
)

// RoundTrip checks that decode returns the value that was given to encode, for random values of T in which every
// string has random bytes, mostly not UTF-8. Fields that JSON does not hold stay zero, and so do values that encode
// themselves, except times. Each function in adapt changes such a value first, where T cannot have all values.
func RoundTrip[T any](t *testing.T, encode func(T) ([]byte, error), decode func([]byte) (T, error), adapt ...func(*T)) {
	t.Helper()
	for seed := range uint64(50) {
		v, same := random[T](seed), random[T](seed)
		for _, change := range adapt {
			change(&v)
			change(&same)
		}
		text, err := encode(v)
		if err != nil {
			t.Fatalf("seed %d: encoding %T: %v", seed, v, err)
		}
		if !reflect.DeepEqual(v, same) {
			t.Fatalf("seed %d: encoding changed the %T", seed, v)
		}
		if !utf8.Valid(text) || !json.Valid(text) {
			t.Fatalf("seed %d: %T: not JSON in UTF-8: %q", seed, v, text)
		}
		got, err := decode(text)
		if err != nil {
			t.Fatalf("seed %d: decoding %T: %v", seed, v, err)
		}
		if !reflect.DeepEqual(got, v) {
			t.Fatalf("seed %d: %T does not come back:\n%#v\n%#v\n%s", seed, v, v, got, text)
		}
	}
}

// Value checks, as RoundTrip does, that package exactjson keeps every string of a T.
func Value[T any](t *testing.T) {
	t.Helper()
	RoundTrip(t, func(v T) ([]byte, error) { return exactjson.Encode(v) }, func(text []byte) (v T, err error) {
		err = exactjson.Decode(text, &v)
		return v, err
	})
}

// random returns a random value with random strings. The same seed makes the same value, which shares nothing with
// the one before.
func random[T any](seed uint64) (v T) {
	filler{rand.New(rand.NewPCG(seed, 0))}.fill(reflect.ValueOf(&v).Elem(), 0)
	return v
}

// deepest is how many pointers, slices and maps fill follows, because a type may contain itself.
const deepest = 6

type filler struct{ *rand.Rand }

// text returns a string of at least one byte: UTF-8 text, any bytes, or text that looks like an escaped string.
func (f filler) text() string {
	switch f.IntN(8) {
	case 0:
		return "plain /päth \ufffd <&>\u2028"
	case 1:
		return "\x00AAAA"
	case 2:
		return `\ufffd \u0000`
	}
	b := make([]byte, 1+f.IntN(12))
	for i := range b {
		b[i] = byte(f.Uint32())
	}
	return string(b)
}

func (f filler) fill(v reflect.Value, depth int) {
	if !v.CanSet() { // an embedded struct of an unexported type has exported fields
		for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
			f.fill(v.Field(i), depth)
		}
		return
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(f.Int64N(4e9), f.Int64N(1e9)).UTC()))
		return
	}
	p := reflect.PointerTo(v.Type())
	if p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.Int64N(100))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(f.Uint64N(100))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.IntN(100)) / 4)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				f.fill(v.Field(i), depth)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), depth)
		}
	default:
		if depth < deepest {
			f.fillShared(v, depth+1)
		}
	}
}

// fillShared is fill for the kinds of values that refer to others.
func (f filler) fillShared(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+f.IntN(2), 2))
		for i := range v.Len() {
			f.fill(v.Index(i), depth)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + f.IntN(2) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth)
			f.fill(value, depth)
			v.SetMapIndex(key, value)
		}
	default: // interfaces, functions and channels stay nil
	}
}
