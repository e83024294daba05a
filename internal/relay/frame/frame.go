// Package frame encodes what two replicas exchange in a forwarding session: the requests of
// a standby, and the answers of the leader. A frame is the length of the rest in 4 bytes,
// its kind, the id of its request in 8 bytes, and a payload. It is no longer than MaxBytes.
//
// Decoders accept any input: what they allocate is at most some times its length.
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Kind is what a frame is.
type Kind byte

// Kinds of frames. The first byte of an answer is 1 in its last frame.
const (
	Ping    Kind = iota // of both, every Period without others
	Request             // of the standby
	Cancel              // of the standby: the client of a request has gone
	Answer              // of the leader: a part of an answer
	Abort               // of the leader: there is no answer
)

const (
	// MaxBytes limits a frame, and what can be read ahead of it.
	MaxBytes = 64 << 10
	// MaxPending limits the requests of a session that have no answer yet.
	MaxPending = 1000
	// Period is between two frames of an end that has nothing to send, and Silence after how
	// long an end is lost from which nothing comes.
	Period  = 2 * time.Second
	Silence = 5 * time.Second

	lengthBytes = 4
	headBytes   = lengthBytes + 1 + 8
)

var errMalformed = errors.New("malformed frame")

// Begin appends a frame without its payload, which the caller appends. End completes it.
func Begin(buf []byte, kind Kind, id uint64) []byte {
	buf = append(buf, 0, 0, 0, 0, byte(kind))
	return binary.BigEndian.AppendUint64(buf, id)
}

// End sets the length of the frame that begins at a position of buf, and reports whether it
// is not too long.
func End(buf []byte, begin int) bool {
	size := len(buf) - begin
	binary.BigEndian.PutUint32(buf[begin:], uint32(size-lengthBytes))
	return size <= MaxBytes
}

// Limited is a connection whose reads and writes fail after Silence.
type Limited struct{ net.Conn }

// Read implements io.Reader.
func (c Limited) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(Silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements io.Writer.
func (c Limited) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(Silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Reader reads frames. It is used by one goroutine at a time.
type Reader struct {
	from *bufio.Reader
	last int // bytes of the frame that was returned last
}

// NewReader returns a reader with a buffer of MaxBytes.
func NewReader(from io.Reader) *Reader {
	return &Reader{from: bufio.NewReaderSize(from, MaxBytes)}
}

// Next returns the next frame. Its payload is valid until the next call.
func (r *Reader) Next() (kind Kind, id uint64, payload []byte, err error) {
	if _, err := r.from.Discard(r.last); err != nil {
		return 0, 0, nil, err
	}
	r.last = 0
	head, err := r.from.Peek(headBytes)
	if err != nil {
		return 0, 0, nil, err
	}
	size := int64(binary.BigEndian.Uint32(head)) + lengthBytes
	if size < headBytes || size > MaxBytes {
		return 0, 0, nil, fmt.Errorf("%w: %d bytes", errMalformed, size)
	}
	all, err := r.from.Peek(int(size))
	if err != nil {
		return 0, 0, nil, err
	}
	r.last = int(size)
	return Kind(all[lengthBytes]), binary.BigEndian.Uint64(all[lengthBytes+1:]), all[headBytes:], nil
}
