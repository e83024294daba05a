package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

func numbered(i int) counter.Contributor { return counter.Contributor([]byte(fmt.Sprintf("%016d", i))) }

// large returns what is pending of a number of series of 64 KiB.
func large(series int) (out []PendingSeries) {
	o := newOwner()
	for i := range series {
		o.add(i, strings.Repeat("x", 1<<16))
		out = append(out, PendingSeries{o.counters[i].Series(), o.counters[i].Records()})
	}
	return out
}

// hold has holdings hold something of a contributor.
func (h *Holdings) hold(t *testing.T, c counter.Contributor, position uint64, pending []PendingSeries) *incoming {
	t.Helper()
	in, err := h.open(c, 0)
	if err == nil {
		err = in.apply(&Batch{Position: position, Snapshot: pending, Complete: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// However many contributors there have been, the position of 64 is known of which nothing is held.
func TestPositionsAreBounded(t *testing.T) {
	const n = 2 * maxEmpty
	pending := large(1)
	for name, test := range map[string]struct {
		known int
		held  func(h *Holdings, c counter.Contributor)
	}{
		"held": {n, func(h *Holdings, c counter.Contributor) { h.hold(t, c, 1, pending).close() }},
		"released": {maxEmpty, func(h *Holdings, c counter.Contributor) {
			h.hold(t, c, 1, pending).close()
			h.Release(c, 1)
		}},
		"settled": {maxEmpty, func(h *Holdings, c counter.Contributor) {
			in := h.hold(t, c, 1, pending)
			in.apply(&Batch{Position: 2, Complete: true, Changes: []Change{{Settled: []uint64{1}}}})
			in.close()
		}},
		"handed over": {maxEmpty, func(h *Holdings, c counter.Contributor) { h.receive(Mark{c, 1}).keep(1) }},
	} {
		h := NewHoldings(16 << 20)
		for i := range n {
			test.held(h, numbered(i))
		}
		ended := h.Ended()
		if held, bytes := h.Usage(); len(ended) != test.known || ended[0].Contributor != numbered(n-test.known) || (held > 0) != (test.known == n) || (bytes > 0) != (held > 0) {
			t.Errorf("%s: %d are known, from %v; %d occurrences are held with %d bytes", name, len(ended), ended[0].Contributor, held, bytes)
		}
	}
}

// Nothing stays of a handover during which the session ends.
func TestHalfAHandoverIsNotKept(t *testing.T) {
	var sent bytes.Buffer
	part := handover{Mark: Mark{contributor, 5}, Series: large(2)}
	if err := newEncoder(&sent).encode(fromFollower{Handover: &part}); err != nil {
		t.Fatal(err)
	}
	h := NewHoldings(1 << 20)
	err := Serve(t.Context(), newOwner().journal, h, session{bytes.NewReader(sent.Bytes())})
	if n, used := h.Usage(); err == nil || n != 0 || used != 0 {
		t.Errorf("%v; %d occurrences are held with %d bytes", err, n, used)
	}
}

func TestChangeOfASeriesOfWhichNothingIsHeldIsAnError(t *testing.T) {
	in := NewHoldings(1<<20).hold(t, contributor, 1, nil)
	if err := in.apply(&Batch{Position: 2, Changes: []Change{{Key: occurrence.Key{A: 1}, Settled: []uint64{1}}}}); err == nil {
		t.Error("no error")
	}
}

// A handover for which there is no memory is declined. Nothing of it stays.
func TestHandoverWithoutMemoryIsDeclined(t *testing.T) {
	h := NewHoldings(1 << 20)
	a := h.receive(Mark{contributor, 5})
	if err := a.add(&handover{Mark: Mark{contributor, 4}}); !errors.Is(err, errOtherHandover) {
		t.Errorf("a part of another one: %v", err)
	}
	for range 2 {
		pending := large(10)
		for i := range pending { // more series
			pending[i].Series.Key.B = uint64(h.now)
		}
		if err := a.add(&handover{Mark: Mark{contributor, 5}, Series: pending}); err != nil {
			t.Error(err)
		}
		h.now++
	}
	if _, used := h.Usage(); a.keep(1) || used != 0 {
		t.Errorf("%d bytes are held", used)
	}
	a.discard() // the session ends
	if n, used := h.Usage(); n != 0 || used != 0 {
		t.Errorf("%d occurrences are held with %d bytes", n, used)
	}
}

// parts has the sizes of what is written.
type parts struct {
	io.ReadWriteCloser
	mu    sync.Mutex
	sizes []int
}

func (p *parts) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes = append(p.sizes, len(b))
	return p.ReadWriteCloser.Write(b)
}

// The leader declines while it follows the contributor itself (rule Ended). The follower hands over
// again, after delays that double up to a bound, and releases what the leader has released before.
func TestDeclinedHandoverIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const series = 50
		other := numbered(1)
		held, leads := NewHoldings(10<<20), NewHoldings(10<<20)
		open := leads.hold(t, other, 1, nil)
		held.hold(t, other, 5, large(series)).close()
		o := newOwner()
		o.journal.Release(other, 4)
		here, there := net.Pipe()
		follower := &parts{ReadWriteCloser: here}
		var running sync.WaitGroup
		running.Go(func() { Serve(t.Context(), o.journal, leads, there) })
		running.Go(func() { held.Follow(t.Context(), follower) })
		want := func(when string, after time.Duration, handedOver int, leader int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			follower.mu.Lock()
			frames, largest, sum := 0, 0, 0
			for _, n := range follower.sizes {
				if n > 1<<15 {
					frames, largest, sum = frames+1, max(largest, n), sum+n
				}
			}
			follower.mu.Unlock()
			if n, _ := leads.Usage(); n != leader || frames != 4*handedOver || largest > partBytes+1<<17 || sum > (series+1)*handedOver<<16+1<<17 {
				t.Errorf("%s: %d frames of at most %d, %d bytes; the leader holds %d", when, frames, largest, sum, n)
			}
		}
		want("at once", 0, 1, 0)
		for i, delay := range []time.Duration{1, 2, 4, 8, 8} {
			want("before the delay has passed", delay*time.Second-1, i+1, 0)
			want("after it", 1, i+2, 0)
		}
		open.close()
		o.Lock()
		o.journal.releases[other] = 5 // as if the follower had not got it
		o.Unlock()
		want("accepted", time.Hour, 7, series)
		if n, _ := held.Usage(); n != 0 {
			t.Errorf("%d are not released", n)
		}
		here.Close()
		running.Wait()
	})
}

// A session waits for both halves, after it has closed the session.
func TestSessionWaitsForItsHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, over := time.Now(), false
		here, _ := net.Pipe()
		run(t.Context(), here, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			over = true
			return nil
		}, func(context.Context) error { return io.EOF })
		if took := time.Since(began); !over || took != 100*time.Millisecond {
			t.Errorf("it has returned after %v, and both halves: %t", took, over)
		}
	})
}
