package history

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

var errCorrupt = errors.New("the block is corrupt")

// texts encodes a column of strings. Each row has a code: 0 is the next new value, n is the value that
// was new n values ago.
type texts struct {
	index                map[string]int
	last                 string
	lastIndex            int
	codes, lengths, data []byte
}

func (c *texts) add(s string) {
	n := len(c.index)
	if n > 0 && s == c.last { // without the map: rows are sorted
		c.codes = binary.AppendUvarint(c.codes, uint64(n-c.lastIndex))
		return
	}
	at, ok := c.index[s]
	if ok {
		c.codes = binary.AppendUvarint(c.codes, uint64(n-at))
	} else {
		if at = n; c.index == nil {
			c.index = make(map[string]int)
		}
		c.index[s] = n
		c.codes = append(c.codes, 0)
		c.lengths = binary.AppendUvarint(c.lengths, uint64(len(s)))
		c.data = append(c.data, s...)
	}
	c.last, c.lastIndex = s, at
}

// appendTo has no codes if all rows are equal.
func (c *texts) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.index)))
	if len(c.index) > 1 {
		b = append(b, c.codes...)
	}
	b = append(b, c.lengths...)
	return append(b, c.data...)
}

// column is a decoded column of strings. Its data is that of the frame.
type column struct {
	values []uint32 // of each row; none if all are equal
	ends   []uint32 // of each value, in data
	data   []byte
}

func (c *column) at(row int) []byte {
	value, begin := uint32(0), uint32(0)
	if len(c.values) > 0 {
		value = c.values[row]
	}
	if value > 0 {
		begin = c.ends[value-1]
	}
	return c.data[begin:c.ends[value]]
}

// reader reads a frame that is no longer compressed. After an error it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	r.b, r.err = nil, errCorrupt
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		n := r.b[0]
		r.b = r.b[1:]
		return uint64(n)
	}
	value, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return value
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	part := r.b[:n:n]
	r.b = r.b[n:]
	return part
}

// column reads what texts has encoded of a number of rows.
func (r *reader) column(c *column, rows int) {
	c.values, c.ends, c.data = c.values[:0], c.ends[:0], nil
	values := r.uvarint()
	if values > 1 {
		r.codes(c, values, rows)
	}
	if values > uint64(rows) || values == 0 && rows > 0 || r.err != nil {
		r.fail()
		return
	}
	total := uint64(0)
	for range values {
		total += min(r.uvarint(), 1<<31)
		if total > uint64(len(r.b)) {
			r.fail()
			return
		}
		c.ends = append(c.ends, uint32(total))
	}
	c.data = r.bytes(total)
}

// codes reads which of a number of values the rows have.
func (r *reader) codes(c *column, values uint64, rows int) {
	seen := uint32(0)
	for range rows {
		code := r.uvarint()
		if code > uint64(seen) {
			r.fail()
			return
		}
		c.values = append(c.values, seen-uint32(code))
		if code == 0 {
			seen++
		}
	}
	if uint64(seen) != values {
		r.fail()
	}
}

// appendTime encodes a time relative to another one, in microseconds since 1970. Most times of Events
// are in seconds, so a fraction is apart.
func appendTime(b []byte, micros, base int64) []byte {
	if micros == noTime {
		return append(b, 0)
	}
	seconds, fraction := inSeconds(micros)
	baseSeconds, _ := inSeconds(base)
	difference := seconds - baseSeconds
	code := uint64(difference<<1) ^ uint64(difference>>63)
	if fraction == 0 {
		return binary.AppendUvarint(b, code<<1+1)
	}
	b = binary.AppendUvarint(b, code<<1+2)
	return binary.AppendUvarint(b, uint64(fraction))
}

// noTime is the zero time, in microseconds since 1970.
const noTime = math.MinInt64

// time reads what appendTime has encoded, in microseconds since 1970.
func (r *reader) time(base int64) int64 {
	code := r.uvarint()
	if code == 0 {
		return noTime
	}
	code--
	fraction := int64(0)
	if code&1 == 1 {
		fraction = int64(r.uvarint())
	}
	code >>= 1
	difference := int64(code>>1) ^ -int64(code&1)
	seconds, _ := inSeconds(base)
	return (seconds+difference)*1e6 + fraction
}

// microsOf is a time in microseconds since 1970.
func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time {
	if micros == noTime {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// or returns a time, or another one if there is none.
func or(micros, other int64) int64 {
	if micros == noTime {
		return other
	}
	return micros
}

func inSeconds(micros int64) (seconds, fraction int64) {
	seconds, fraction = micros/1e6, micros%1e6
	if fraction < 0 {
		seconds, fraction = seconds-1, fraction+1e6
	}
	return seconds, fraction
}
