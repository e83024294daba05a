package counter

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/wire"
)

// Lower bounds of the encoded sizes of a claim and an entry.
const (
	claimLength = contributorLength + 2
	entryLength = 18
)

// Write encodes a series. It computes the digest if that is not known, in about a microsecond.
func (s *Series) Write(w *wire.Writer) {
	w.Uint(s.Key.A)
	w.Uint(s.Key.B)
	w.String(s.Namespace)
	w.String(s.Object)
	w.String(s.EventType)
	w.Bool(s.Combined)
	w.Bool(s.Keyed)
	d := s.Identity.Digest()
	w.Raw(d[:])
}

// ReadSeries reads what Write has written.
func ReadSeries(r *wire.Reader) *Series {
	s := &Series{Key: occurrence.Key{A: r.Uint(), B: r.Uint()}, Namespace: r.String(), Object: r.String(), EventType: r.String()}
	s.Combined, s.Keyed = r.Bool(), r.Bool()
	copy(s.Identity.digest[:], r.Raw(len(s.Identity.digest)))
	return s
}

// WriteEntries encodes entries.
func WriteEntries(w *wire.Writer, entries []EntryRecord) error {
	w.Uint(uint64(len(entries)))
	for i := range entries {
		if err := entries[i].Write(w); err != nil {
			return err
		}
	}
	return nil
}

// ReadEntries reads what WriteEntries has written.
func ReadEntries(r *wire.Reader) []EntryRecord {
	entries := make([]EntryRecord, r.Len(entryLength))
	for i := range entries {
		entries[i] = ReadEntry(r)
	}
	return entries
}

// Write encodes an entry. The error is that of an Event.
func (e *EntryRecord) Write(w *wire.Writer) error {
	w.Uint(e.Sequence)
	w.Int(e.Weight)
	w.Int(e.Anonymous)
	w.Uint(uint64(len(e.Claims)))
	for _, c := range e.Claims {
		w.Raw(c.Client[:])
		w.Int(c.Total)
		w.Int(c.Weight)
	}
	w.Bool(e.Changes)
	w.String(e.User)
	w.Bool(e.CreateOnly)
	for _, c := range []*Content{&e.Oldest, &e.Newest} {
		if err := c.write(w); err != nil {
			return err
		}
	}
	w.Map(e.Labels)
	w.Map(e.Annotations)
	w.Bool(e.Merged == occurrence.Aggregated)
	w.Bool(e.Deferred)
	return nil
}

// ReadEntry reads what Write has written.
func ReadEntry(r *wire.Reader) (e EntryRecord) {
	e.Sequence, e.Weight, e.Anonymous = r.Uint(), r.Int(), r.Int()
	if n := r.Len(claimLength); n > 0 {
		e.Claims = make([]Claim, n)
	}
	for i := range e.Claims {
		c := &e.Claims[i]
		copy(c.Client[:], r.Raw(contributorLength))
		c.Total, c.Weight = r.Int(), r.Int()
	}
	e.Changes, e.User, e.CreateOnly = r.Bool(), r.String(), r.Bool()
	e.Oldest, e.Newest = readContent(r), readContent(r)
	e.Labels, e.Annotations = r.Map(), r.Map()
	e.Merged = occurrence.Merged
	if r.Bool() {
		e.Merged = occurrence.Aggregated
	}
	e.Deferred = r.Bool()
	return e
}

// write encodes an Event as protobuf, with its length before it, and 0 for none.
func (c *Content) write(w *wire.Writer) error {
	w.Uint(uint64(c.API))
	w.Int(c.Recorded.UnixNano())
	if c.Event == nil {
		w.Uint(0)
		return nil
	}
	size := c.Event.Size()
	w.Uint(uint64(size))
	begin := len(w.Bytes)
	w.Bytes = append(w.Bytes, make([]byte, size)...)
	_, err := c.Event.MarshalToSizedBuffer(w.Bytes[begin:])
	return err
}

func readContent(r *wire.Reader) Content {
	c := Content{API: occurrence.API(min(r.Uint(), math.MaxUint8)), Recorded: time.Unix(0, r.Int())}
	b := r.Bytes()
	if len(b) == 0 {
		return c
	}
	if c.Event = (&corev1.Event{}); countFields(b, false) > maxFields || c.Event.Unmarshal(b) != nil {
		c.Event = nil
		r.Fail()
		return c
	}
	c.bytes = eventsize.Of(c.Event)
	return c
}

// maxFields is far above the fields that an Event has: the intake limits those of lists to 64.
const maxFields = 4096

// countFields returns the fields of an Event in protobuf and of its metadata, which is field 1. They
// are counted before they are decoded: an empty owner reference has 2 bytes, and takes 104.
func countFields(b []byte, isMetadata bool) (n int) {
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 || kind == protowire.StartGroupType { // groups nest, and Kubernetes has none
			return maxFields + 1
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return maxFields + 1
		}
		if n++; !isMetadata && number == 1 && kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(b[tag:])
			n += countFields(content, true)
		}
		b = b[tag+size:]
	}
	return n
}
