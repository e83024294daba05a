package history

import (
	"encoding/binary"
	"errors"
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

func (c *texts) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.index)))
	b = append(b, c.codes...)
	b = append(b, c.lengths...)
	return append(b, c.data...)
}

// column is a decoded column of strings. Its data is that of the frame.
type column struct {
	values []uint32 // of each row
	ends   []uint32 // of each value, in data
	data   []byte
}

func (c *column) at(row int) []byte {
	value := c.values[row]
	begin := uint32(0)
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
	seen := uint64(0)
	for range rows {
		code := r.uvarint()
		if code > seen || r.err != nil {
			r.fail()
			return
		}
		if code == 0 {
			c.values = append(c.values, uint32(seen))
			seen++
			continue
		}
		c.values = append(c.values, uint32(seen-code))
	}
	if seen != values {
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

// varints reads a column of signed numbers.
func (r *reader) varints(numbers []int64, rows int) []int64 {
	numbers = numbers[:0]
	for range rows {
		numbers = append(numbers, r.varint())
	}
	return numbers
}

// appendTime encodes a time relative to another one, in microseconds since 1970. Most times of Events
// are in seconds, so a fraction is apart.
func appendTime(b []byte, t time.Time, base int64) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	seconds, fraction := inSeconds(t.UnixMicro())
	baseSeconds, _ := inSeconds(base)
	difference := seconds - baseSeconds
	code := uint64(difference<<1) ^ uint64(difference>>63)
	if fraction == 0 {
		return binary.AppendUvarint(b, code<<1+1)
	}
	b = binary.AppendUvarint(b, code<<1+2)
	return binary.AppendUvarint(b, uint64(fraction))
}

func (r *reader) time(base int64) time.Time {
	code := r.uvarint()
	if code == 0 {
		return time.Time{}
	}
	code--
	fraction := int64(0)
	if code&1 == 1 {
		fraction = int64(r.uvarint())
	}
	code >>= 1
	difference := int64(code>>1) ^ -int64(code&1)
	seconds, _ := inSeconds(base)
	return time.UnixMicro((seconds+difference)*1e6 + fraction)
}

// microsOf is a time for which another one may be the base, or that base if it is zero.
func microsOf(t time.Time, base int64) int64 {
	if t.IsZero() {
		return base
	}
	return t.UnixMicro()
}

func inSeconds(micros int64) (seconds, fraction int64) {
	seconds, fraction = micros/1e6, micros%1e6
	if fraction < 0 {
		seconds, fraction = seconds-1, fraction+1e6
	}
	return seconds, fraction
}
