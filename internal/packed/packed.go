// Package packed encodes values as short sequences of bytes, for files from which thousands of values are read at
// once. It decodes a value in about a sixth of the time of a JSON decoder, because it looks at no field that is zero
// and copies no string. The bytes are only good for a cache: a program whose type has other fields cannot read them,
// and tells that by the [Layout].
//
// Values consist of booleans, numbers, strings, times, slices, pointers and structs. Unexported fields are left out.
package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// errShort is the error of a value whose bytes are not those of its type.
var errShort = errors.New("not the bytes of such a value")

var timeType = reflect.TypeFor[time.Time]()

// Layout returns a text that is different for two types if they, or types that they consist of, have different
// fields or field tags. Values of T can be decoded if they were encoded from a type with the same layout. Errors: a
// part of T is of a type that this package does not encode. T must not contain itself.
func Layout[T any]() (string, error) {
	b, err := layout(nil, reflect.TypeFor[T]())
	return string(b), err
}

func layout(b []byte, t reflect.Type) (_ []byte, err error) {
	b = append(b, t.Kind().String()...)
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float64, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return b, nil
	case reflect.Slice, reflect.Pointer:
		return layout(append(b, ' '), t.Elem())
	case reflect.Struct:
		if t == timeType {
			return append(b, " time"...), nil
		}
		b = append(b, '{')
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			b = append(append(append(append(b, f.Name...), ' '), f.Tag...), ' ')
			if b, err = layout(b, f.Type); err != nil {
				return b, err
			}
			b = append(b, ';')
		}
		return append(b, '}'), nil
	}
	return b, fmt.Errorf("cannot encode a %v", t)
}

// Append appends the bytes of the value *v to b and returns the longer slice. Where [Layout] returns an error, the
// bytes cannot be decoded.
func Append[T any](b []byte, v *T) []byte { return appendValue(b, reflect.ValueOf(v).Elem()) }

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.Float64:
		return binary.BigEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case reflect.String:
		return AppendString(b, v.String())
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			return appendTime(b, t)
		}
		return appendStruct(b, v)
	}
	return b
}

// AppendString appends the length of s and s to b. [Reader.String] reads it.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTime appends a time without its monotonic reading. A time that has no binary form, with an offset of
// seconds from UTC, becomes one of the same instant in UTC.
func appendTime(b []byte, t time.Time) []byte {
	data, err := t.MarshalBinary()
	if err != nil {
		data, _ = t.UTC().MarshalBinary()
	}
	return append(append(b, byte(len(data))), data...)
}

// appendStruct appends one bit for each field, set if the field is not zero, and then the fields that are not zero.
func appendStruct(b []byte, v reflect.Value) []byte {
	at, n := len(b), v.NumField()
	b = append(b, make([]byte, (n+7)/8)...)
	t := v.Type()
	for i := range n {
		if f := v.Field(i); t.Field(i).IsExported() && !f.IsZero() {
			b[at+i/8] |= 1 << (i % 8)
			b = appendValue(b, f)
		}
	}
	return b
}

// Decode sets the zero value *v to the value whose bytes data has, and nothing after it. The strings of *v are parts
// of data. It returns an error, and leaves *v undefined, if data ends within the value or goes on after it.
func Decode[T any](data string, v *T) error {
	r := Reader{rest: data}
	r.value(reflect.ValueOf(v).Elem())
	if r.bad || r.rest != "" {
		return errShort
	}
	return nil
}
