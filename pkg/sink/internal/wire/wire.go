// Package wire encodes values as bytes, one after the other. A Reader allocates at most a few times
// what it is given, whatever that is: encoding/gob makes a map of any size that two kilobytes name,
// and keeps all types that they define.
package wire

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed is of bytes that no Writer has written.
var ErrMalformed = errors.New("malformed data")

// Writer appends values to Bytes.
type Writer struct{ Bytes []byte }

// Uint appends a number. Small ones are short.
func (w *Writer) Uint(v uint64) { w.Bytes = binary.AppendUvarint(w.Bytes, v) }

// Int appends a number that is usually not negative.
func (w *Writer) Int(v int64) { w.Uint(uint64(v)) }

// Bool appends a bool.
func (w *Writer) Bool(v bool) {
	if v {
		w.Uint(1)
	} else {
		w.Uint(0)
	}
}

// Raw appends bytes of a fixed length.
func (w *Writer) Raw(b []byte) { w.Bytes = append(w.Bytes, b...) }

// String appends a string.
func (w *Writer) String(s string) {
	w.Uint(uint64(len(s)))
	w.Bytes = append(w.Bytes, s...)
}

// Map appends a map, which may be nil.
func (w *Writer) Map(m map[string]string) {
	if w.Bool(m != nil); m == nil {
		return
	}
	w.Uint(uint64(len(m)))
	for k, v := range m {
		w.String(k)
		w.String(v)
	}
}

// Reader reads values in the order in which they were written. After an error, all are zero.
type Reader struct {
	rest []byte
	err  error
}

// NewReader returns a Reader of some bytes, which must not change until all is read.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Err returns ErrMalformed if a value could not be read or something is left.
func (r *Reader) Err() error {
	if r.err == nil && len(r.rest) > 0 {
		r.Fail()
	}
	return r.err
}

// Fail makes all further values zero.
func (r *Reader) Fail() { r.rest, r.err = nil, ErrMalformed }

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Int reads a number.
func (r *Reader) Int() int64 { return int64(r.Uint()) }

// Bool reads a bool.
func (r *Reader) Bool() bool {
	v := r.Uint()
	if v > 1 {
		r.Fail()
	}
	return v == 1
}

// Len reads a number of elements, of which each takes a number of bytes at least.
func (r *Reader) Len(each int) int {
	n := r.Uint()
	if n > uint64(len(r.rest)/each) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Raw reads bytes of a fixed length. They are a part of those of NewReader; nil after an error.
func (r *Reader) Raw(length int) []byte {
	if length > len(r.rest) {
		r.Fail()
		return nil
	}
	b := r.rest[:length]
	r.rest = r.rest[length:]
	return b
}

// Bytes reads what String has written, as a part of the bytes of NewReader.
func (r *Reader) Bytes() []byte { return r.Raw(r.Len(1)) }

// String reads a string.
func (r *Reader) String() string { return string(r.Bytes()) }

// Map reads a map.
func (r *Reader) Map() map[string]string {
	if !r.Bool() {
		return nil
	}
	m := make(map[string]string)
	for range r.Len(2) {
		k := r.String()
		m[k] = r.String()
	}
	return m
}
