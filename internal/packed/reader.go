package packed

import (
	"encoding/binary"
	"math"
	"reflect"
	"time"
)

// A Reader reads what [Append], [AppendString] and package encoding/binary have appended to a slice of bytes, in
// the same order. After the first value that the text does not have, each further one is zero.
type Reader struct {
	rest string
	bad  bool
}

// NewReader returns a Reader of data.
func NewReader(data string) *Reader { return &Reader{rest: data} }

// Done reports whether the text had every value read so far and has nothing after them.
func (r *Reader) Done() bool { return !r.bad && r.rest == "" }

// Bad reports whether the text lacked a value that was read.
func (r *Reader) Bad() bool { return r.bad }

// take returns the next n bytes.
func (r *Reader) take(n uint64) string {
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// Uvarint returns the next value, which binary.AppendUvarint has appended.
func (r *Reader) Uvarint() (x uint64) {
	for i := range min(len(r.rest), binary.MaxVarintLen64) {
		c := r.rest[i]
		x |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.rest = r.rest[i+1:]
			return x
		}
	}
	r.bad, r.rest = true, ""
	return 0
}

// Varint returns the next value, which binary.AppendVarint has appended.
func (r *Reader) Varint() int64 {
	u := r.Uvarint()
	x := int64(u >> 1)
	if u&1 != 0 {
		x = ^x
	}
	return x
}

// String returns the next value, which [AppendString] has appended. It is a part of the text.
func (r *Reader) String() string { return r.take(r.Uvarint()) }

func (r *Reader) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.take(1) == "\x01")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(r.Varint())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uvarint())
	case reflect.Float64:
		if s := r.take(8); s != "" {
			v.SetFloat(math.Float64frombits(binary.BigEndian.Uint64([]byte(s))))
		}
	case reflect.String:
		v.SetString(r.String())
	case reflect.Pointer:
		if r.take(1) == "\x01" {
			v.Set(reflect.New(v.Type().Elem()))
			r.value(v.Elem())
		}
	case reflect.Slice:
		r.slice(v)
	case reflect.Struct:
		r.structure(v)
	default:
		r.bad = true
	}
}

func (r *Reader) slice(v reflect.Value) {
	n := r.Uvarint()
	if n == 0 {
		return // nil
	}
	n--
	if n > uint64(len(r.rest)) { // each element has a byte at least
		r.bad, r.rest = true, ""
		return
	}
	v.Grow(int(n))
	v.SetLen(int(n))
	if n == 0 {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // not nil
	}
	for i := range int(n) {
		r.value(v.Index(i))
	}
}

func (r *Reader) structure(v reflect.Value) {
	if t, ok := v.Addr().Interface().(*time.Time); ok {
		n := r.take(1)
		if n == "" || t.UnmarshalBinary([]byte(r.take(uint64(n[0])))) != nil {
			r.bad = true
		}
		return
	}
	n := v.NumField()
	set := r.take(uint64(n+7) / 8)
	if r.bad {
		return
	}
	for i := range n {
		if set[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		f := v.Field(i)
		if !f.CanSet() {
			r.bad = true
			return
		}
		r.value(f)
	}
}
