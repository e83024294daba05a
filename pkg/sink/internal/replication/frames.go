package replication

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/wire"
)

// maxFrame bounds a frame. It is more than maxBacklog takes, a part and the largest entry.
const maxFrame = 32 << 20

var errFrameTooLarge = fmt.Errorf("a frame has more than %d bytes", maxFrame)

// keptBuffer is the largest buffer that is kept for the next frame.
const keptBuffer = 1 << 20

// encoder writes frames: their length, and their content. It is not safe for concurrent use.
type encoder struct {
	to    io.Writer
	frame wire.Writer
}

func newEncoder(to io.Writer) *encoder { return &encoder{to: to} }

func (e *encoder) encode(frame interface{ write(*wire.Writer) error }) error {
	defer func() {
		if cap(e.frame.Bytes) > keptBuffer {
			e.frame.Bytes = nil
		}
	}()
	e.frame.Bytes = append(e.frame.Bytes[:0], 0, 0, 0, 0)
	if err := frame.write(&e.frame); err != nil {
		return err
	}
	b := e.frame.Bytes
	if len(b) > maxFrame {
		return errFrameTooLarge
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := e.to.Write(b)
	return err
}

// decoder reads frames. It is not safe for concurrent use.
type decoder struct {
	from  *bufio.Reader
	frame bytes.Buffer
}

func newDecoder(from io.Reader) *decoder { return &decoder{from: bufio.NewReader(from)} }

// decode reads the next frame. Its memory grows as it arrives.
func (d *decoder) decode(frame interface{ read(*wire.Reader) }) error {
	var length [4]byte
	if _, err := io.ReadFull(d.from, length[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(length[:]))
	if n > maxFrame {
		return errFrameTooLarge
	}
	defer func() {
		if d.frame.Cap() > keptBuffer {
			d.frame = bytes.Buffer{}
		}
	}()
	d.frame.Reset()
	if got, err := io.Copy(&d.frame, io.LimitReader(d.from, n)); err != nil || got < n {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	r := wire.NewReader(d.frame.Bytes())
	frame.read(r)
	return r.Err()
}

// Kinds of frames. They have no other meaning than to be different.
const (
	helloFrame = iota + 1
	batchFrame
	answerFrame
	releaseFrame
	ackFrame
	handoverFrame
)

func (f fromLeader) write(w *wire.Writer) error {
	switch {
	case f.Hello != nil:
		w.Uint(helloFrame)
		w.Int(int64(f.Hello.Version))
		w.Raw(f.Hello.Contributor[:])
		w.Int(f.Hello.Bytes)
	case f.Batch != nil:
		w.Uint(batchFrame)
		return f.Batch.write(w)
	case f.Answer != nil:
		w.Uint(answerFrame)
		f.Answer.Mark.write(w)
		w.Bool(f.Answer.Accepted)
	case f.Release != nil:
		w.Uint(releaseFrame)
		f.Release.write(w)
	}
	return nil
}

func (f *fromLeader) read(r *wire.Reader) {
	switch r.Uint() {
	case helloFrame:
		f.Hello = &hello{Version: int(r.Int())}
		copy(f.Hello.Contributor[:], r.Raw(len(f.Hello.Contributor)))
		f.Hello.Bytes = r.Int()
	case batchFrame:
		f.Batch = &Batch{}
		f.Batch.read(r)
	case answerFrame:
		f.Answer = &answer{Mark: readMark(r), Accepted: r.Bool()}
	case releaseFrame:
		f.Release = new(readMark(r))
	default:
		r.Fail()
	}
}

func (f fromFollower) write(w *wire.Writer) error {
	if f.Ack != nil {
		w.Uint(ackFrame)
		w.Uint(f.Ack.Position)
		return nil
	}
	w.Uint(handoverFrame)
	f.Handover.Mark.write(w)
	w.Uint(f.Handover.UpTo)
	w.Bool(f.Handover.Last)
	return writePending(w, f.Handover.Series)
}

func (f *fromFollower) read(r *wire.Reader) {
	switch r.Uint() {
	case ackFrame:
		f.Ack = &ack{r.Uint()}
	case handoverFrame:
		f.Handover = &handover{Mark: readMark(r), UpTo: r.Uint(), Last: r.Bool(), Series: readPending(r)}
	default:
		r.Fail()
	}
}

func (m *Mark) write(w *wire.Writer) {
	w.Raw(m.Contributor[:])
	w.Uint(m.Position)
}

func readMark(r *wire.Reader) (m Mark) {
	copy(m.Contributor[:], r.Raw(len(m.Contributor)))
	m.Position = r.Uint()
	return m
}

// Lower bounds of the encoded sizes of a change and of a series with its entries.
const (
	changeLength  = 4
	pendingLength = 40
)

func (b *Batch) write(w *wire.Writer) error {
	w.Uint(b.Position)
	w.Uint(b.UpTo)
	w.Bool(b.Complete)
	w.Uint(uint64(len(b.Changes)))
	for i := range b.Changes {
		if err := b.Changes[i].write(w); err != nil {
			return err
		}
	}
	return writePending(w, b.Snapshot)
}

func (b *Batch) read(r *wire.Reader) {
	b.Position, b.UpTo, b.Complete = r.Uint(), r.Uint(), r.Bool()
	b.Changes = make([]Change, r.Len(changeLength))
	for i := range b.Changes {
		b.Changes[i].read(r)
	}
	b.Snapshot = readPending(r)
}

// Kinds of changes.
const (
	settled = iota
	joined
	added
	addedFirst // of its series
)

func (c *Change) write(w *wire.Writer) error {
	w.Uint(c.Key.A)
	w.Uint(c.Key.B)
	switch a := c.Addition; {
	case a != nil:
		if a.Series == nil {
			w.Uint(added)
		} else {
			w.Uint(addedFirst)
			a.Series.Write(w)
		}
		w.Bool(a.Merged)
		return a.Entry.Write(w)
	case c.First != 0:
		w.Uint(joined)
		w.Uint(c.First)
		w.Uint(c.Second)
	default:
		w.Uint(settled)
		w.Uint(uint64(len(c.Settled)))
		for _, sequence := range c.Settled {
			w.Uint(sequence)
		}
	}
	return nil
}

func (c *Change) read(r *wire.Reader) {
	c.Key = occurrence.Key{A: r.Uint(), B: r.Uint()}
	switch kind := r.Uint(); kind {
	case added, addedFirst:
		c.Addition = &counter.Addition{}
		if kind == addedFirst {
			c.Addition.Series = counter.ReadSeries(r)
		}
		c.Addition.Merged, c.Addition.Entry = r.Bool(), counter.ReadEntry(r)
	case joined:
		c.First, c.Second = r.Uint(), r.Uint()
	case settled:
		c.Settled = make([]uint64, r.Len(1))
		for i := range c.Settled {
			c.Settled[i] = r.Uint()
		}
	default:
		r.Fail()
	}
}

func writePending(w *wire.Writer, pending []PendingSeries) error {
	w.Uint(uint64(len(pending)))
	for i := range pending {
		pending[i].Series.Write(w)
		if err := counter.WriteEntries(w, pending[i].Entries); err != nil {
			return err
		}
	}
	return nil
}

func readPending(r *wire.Reader) []PendingSeries {
	pending := make([]PendingSeries, r.Len(pendingLength))
	for i := range pending {
		pending[i] = PendingSeries{counter.ReadSeries(r), counter.ReadEntries(r)}
	}
	return pending
}
