package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

var contributor = counter.NewInstance()

// owner has a journal and the counters of some series.
type owner struct {
	sync.Mutex
	journal  *Journal
	counters []*counter.Counter
	sequence uint64
}

func newOwner() *owner {
	o := &owner{}
	o.journal = NewJournal(contributor, Owner{Mutex: o, Pending: o.pending, Changed: func() {}})
	return o
}

func (o *owner) pending() iter.Seq[*counter.Counter] {
	return func(yield func(*counter.Counter) bool) {
		for _, c := range o.counters {
			if len(c.Pending()) > 0 && !yield(c) {
				return
			}
		}
	}
}

// add adds an occurrence of a series.
func (o *owner) add(series int, message string) {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, InvolvedObject: corev1.ObjectReference{Namespace: "ns", Name: "web-0"},
		Reason: "Tested", Message: message, FirstTimestamp: metav1.Now(),
	}
	target := &occurrence.Target{Key: occurrence.Key{A: uint64(series)}, Event: event, Name: "web-0"}
	if series == len(o.counters) {
		o.counters = append(o.counters, counter.New(contributor, target, o.journal))
	}
	// Each has a caller that waits, so it is an entry of its own.
	e, claim := counter.NewEntry(&occurrence.Occurrence{Event: event, Weight: 1, Recorded: time.Now(), Settled: func(occurrence.Settlement) {}}, target)
	o.sequence++
	o.counters[series].Add(o.sequence, 0, &e, claim)
}

// frames returns all frames that a leader sends of what an owner has pending.
func frames(t testing.TB, o *owner) (out []byte) {
	t.Helper()
	s, err := o.journal.Open()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	to := newEncoder(&b)
	encode := func(f fromLeader) {
		if err := to.encode(f); err != nil {
			t.Fatal(err)
		}
	}
	encode(fromLeader{Hello: &hello{version, contributor, 1}})
	for batch := s.next(time.Now()); batch != nil; batch = s.next(time.Now()) {
		encode(fromLeader{Batch: batch})
	}
	s.end()
	return b.Bytes()
}

// session is one of which the other end has sent something, and goes away.
type session struct{ *bytes.Reader }

func (session) Write(p []byte) (int, error) { return len(p), nil }
func (session) Close() error                { return nil }

func TestSnapshotIsHeldAsAWhole(t *testing.T) {
	o := newOwner()
	for i := range 3 * snapshotChunk {
		o.add(i, "it was")
		o.add(i, "it was again")
	}
	sent := frames(t, o)
	for name, test := range map[string]struct {
		sent []byte
		want int64
	}{
		"all of it":              {sent, 6 * snapshotChunk},
		"all but the last byte":  {sent[:len(sent)-1], 0},
		"all but the last batch": {sent[:len(sent)*2/3], 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHoldings(1 << 20)
			if err := h.Follow(t.Context(), session{bytes.NewReader(test.sent)}); err == nil {
				t.Error("no error")
			}
			if n, used := h.Usage(); n != test.want || (used > 0) != (n > 0) {
				t.Errorf("%d occurrences are held with %d bytes, want %d", n, used, test.want)
			}
		})
	}
}

// A tenant may have as much pending in a few series as all may: a frame has a part of it.
func TestLargeSeriesAreSentInParts(t *testing.T) {
	const entries, kib = 40, 100
	o := newOwner()
	for i := range entries {
		o.add(0, strings.Repeat("x", kib<<10))
		o.add(i+1, strings.Repeat("x", kib<<10))
	}
	wantParts := func(sent []byte) {
		for len(sent) > 0 {
			n := 4 + int(binary.BigEndian.Uint32(sent))
			if sent = sent[n:]; n > 2*partBytes {
				t.Errorf("a frame has %d bytes", n)
			}
		}
	}
	sent := frames(t, o)
	wantParts(sent)
	there, back := NewHoldings(16<<20), NewHoldings(16<<20)
	there.Follow(t.Context(), session{bytes.NewReader(sent)})
	var b bytes.Buffer
	if err := new(follower).handOver(newEncoder(&b), &there.Ended()[0]); err != nil {
		t.Fatal(err)
	}
	wantParts(b.Bytes())
	Serve(t.Context(), newOwner().journal, back, session{bytes.NewReader(b.Bytes())})
	for _, h := range []*Holdings{there, back} {
		if n, _ := h.Usage(); n != 2*entries {
			t.Errorf("%d of %d occurrences are held", n, 2*entries)
		}
	}
}

// Changes of a series of which a part is sent come after the other parts.
func TestChangesWaitForTheRestOfALargeSeries(t *testing.T) {
	o := newOwner()
	for range 20 {
		o.add(0, strings.Repeat("x", 100<<10))
	}
	s, err := o.journal.Open()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHoldings(16 << 20)
	in, _ := h.open(contributor, 0)
	for batches := 0; ; batches++ {
		b := s.next(time.Now())
		if err := in.apply(b); err != nil {
			t.Fatal(err)
		}
		if b.Complete {
			if n, _ := h.Usage(); n != 20+int64(batches) || batches < 2 {
				t.Errorf("%d of 20 occurrences are held after %d batches", n, batches)
			}
			return
		}
		o.add(batches+1, "it was")
		if len(b.Changes) != min(batches, 1) {
			t.Errorf("batch %d has %d changes", batches, len(b.Changes))
		}
		if batches == 0 {
			o.counters[0].Drop(o.counters[0].Last(), occurrence.Shutdown, nil)
			for range 20 {
				o.add(0, "it was")
			}
		}
	}
}

func TestFramesAreBounded(t *testing.T) {
	frame := func(length uint32, content string) string {
		return string(binary.BigEndian.AppendUint32(nil, length)) + content
	}
	for name, test := range map[string]struct {
		sent string
		want error
	}{
		"nothing":        {"", io.EOF},
		"half a length":  {"\x00\x00", io.ErrUnexpectedEOF},
		"too large":      {frame(maxFrame+1, ""), errFrameTooLarge},
		"without an end": {frame(maxFrame, "\x05"), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newDecoder(strings.NewReader(test.sent)).decode(&fromLeader{}); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	err := newEncoder(io.Discard).encode(fromFollower{Ack: &ack{1}})
	if err != nil {
		t.Error(err)
	}
	large := fromFollower{Handover: &handover{Series: []PendingSeries{{Series: &counter.Series{Object: strings.Repeat("x", maxFrame)}}}}}
	to := newEncoder(io.Discard)
	if err := to.encode(large); !errors.Is(err, errFrameTooLarge) || cap(to.frame.Bytes) > keptBuffer {
		t.Errorf("a large frame is sent: %v, %d bytes are kept", err, cap(to.frame.Bytes))
	}
	if err := to.encode(fromFollower{Ack: &ack{1}}); err != nil || cap(to.frame.Bytes) == 0 {
		t.Errorf("no buffer is kept: %v", err)
	}
}

func TestBytesOfAChangeAreThoseOfItsContent(t *testing.T) {
	kilobyte := map[string]string{"a": strings.Repeat("x", 1024)}
	added := Change{Addition: &counter.Addition{}}
	for name, test := range map[string]struct {
		c, without Change
		at, most   int64
	}{
		"settled":     {Change{Settled: make([]uint64, 100)}, Change{}, 800, 0},
		"labels":      {Change{Addition: &counter.Addition{Entry: counter.EntryRecord{Labels: kilobyte}}}, added, 1024, 1024},
		"annotations": {Change{Addition: &counter.Addition{Entry: counter.EntryRecord{Annotations: kilobyte}}}, added, 1024, 1024},
	} {
		if more := test.c.bytes() - test.without.bytes(); more < test.at || more > test.at+test.most {
			t.Errorf("%s: %d bytes more, want %d", name, more, test.at)
		}
	}
}

// Whatever the other end sends, a session ends with an error.
func FuzzSession(f *testing.F) {
	o := newOwner()
	for i := range 3 {
		o.add(i, "it was")
	}
	f.Add(false, frames(f, o))
	var b bytes.Buffer
	to := newEncoder(&b)
	h := NewHoldings(1 << 20)
	h.Follow(f.Context(), session{bytes.NewReader(frames(f, o))})
	for _, held := range h.Ended() {
		part := handover{Mark: Mark{held.Contributor, held.Position}, UpTo: held.UpTo, Last: true}
		for _, s := range held.Series {
			part.Series = append(part.Series, s.Pending())
		}
		to.encode(fromFollower{Ack: &ack{o.journal.position}})
		to.encode(fromFollower{Handover: &part})
	}
	f.Add(true, b.Bytes())
	f.Fuzz(func(t *testing.T, leads bool, sent []byte) {
		h := NewHoldings(1 << 20)
		var err error
		if leads {
			o := newOwner()
			o.add(0, "it was")
			err = Serve(t.Context(), o.journal, h, session{bytes.NewReader(sent)})
		} else {
			err = h.Follow(t.Context(), session{bytes.NewReader(sent)})
		}
		if err == nil {
			t.Error("no error")
		}
		for _, held := range h.Ended() {
			for _, s := range held.Series {
				pending := s.Pending()
				counter.Adopt(held.Contributor, *pending.Series, pending.Entries, nil)
			}
		}
	})
}

// A handover is declined while a stream from its contributor is open: that holds more soon (rule
// Ended). It is not kept if something newer is held.
func TestHandoverIsKeptIfItIsTheNewest(t *testing.T) {
	o := newOwner()
	o.add(0, "it was")
	pending := []PendingSeries{{o.counters[0].Series(), o.counters[0].Records()}}
	for name, test := range map[string]struct {
		held           uint64
		open           bool
		accepted, kept bool
	}{
		"nothing is held":  {0, false, true, true},
		"less is held":     {4, false, true, true},
		"as much was held": {5, false, true, false},
		"more was held":    {6, false, true, false},
		"it is followed":   {4, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHoldings(1 << 20)
			if test.held > 0 {
				in, err := h.open(contributor, 0)
				if err != nil {
					t.Fatal(err)
				}
				in.apply(&Batch{Position: test.held, Complete: true})
				if !test.open {
					in.close()
				}
			}
			a := h.receive(Mark{contributor, 5})
			if err := a.add(&handover{Mark: Mark{contributor, 5}, Series: pending, Last: true}); err != nil {
				t.Fatal(err)
			}
			if n, _ := h.Usage(); (n == 1) != test.kept {
				t.Errorf("%d occurrences are held while it arrives", n)
			}
			accepted := a.keep(1)
			if n, _ := h.Usage(); accepted != test.accepted || (n == 1) != test.kept {
				t.Errorf("accepted %t, %d occurrences are held", accepted, n)
			}
		})
	}
}

// A holding at position 0 would not count as one.
func TestHandoverWithoutAPositionIsRefused(t *testing.T) {
	part := handover{Mark: Mark{Contributor: contributor}}
	if err := NewHoldings(1 << 20).receive(part.Mark).add(&part); err == nil {
		t.Error("no error")
	}
}
