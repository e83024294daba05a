package counter

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// A change that does not fit leaves what is held as it was.
func TestChangeThatDoesNotFitIsNotApplied(t *testing.T) {
	event := sinktest.Event(false)
	of := func(sequence uint64, change func(*EntryRecord)) EntryRecord {
		e, _ := NewEntry(&occurrence.Occurrence{Weight: 1}, &occurrence.Target{Event: event})
		e.Sequence = sequence
		r := e.record()
		if change != nil {
			change(&r)
		}
		return r
	}
	claims := func(n int) func(*EntryRecord) {
		return func(r *EntryRecord) {
			for i := range n {
				r.Claims = append(r.Claims, Claim{Client: numbered(i), Total: 1, Weight: 1})
			}
			r.Weight += int64(n)
		}
	}
	apply := func(r EntryRecord, merged bool) func(*Held) error {
		return func(h *Held) error { return h.Apply(r, merged) }
	}
	series := Series{Namespace: event.Namespace, Identity: SeriesIdentity{digest: identity.Of(event)}}
	if err := Hold(numbered(1), series).Apply(of(1, nil), true); !errors.Is(err, errNotMerged) {
		t.Errorf("an occurrence is merged with nothing: %v", err)
	}
	if err := Hold(numbered(1), series).Apply(of(1, claims(MaxBatch-1)), false); err != nil {
		t.Errorf("an entry as large as one write takes: %v", err)
	}
	for name, test := range map[string]struct {
		change func(*Held) error
		want   error
	}{
		"an addition out of order":        {apply(of(2, nil), false), errOrder},
		"a merge out of order":            {apply(of(1, nil), true), errOrder},
		"an entry that is too large":      {apply(of(3, claims(MaxBatch-2)), false), errTooLarge},
		"a merge that is too large":       {apply(of(3, claims(MaxBatch-1)), true), errTooLarge},
		"an Event of another namespace":   {apply(of(3, func(r *EntryRecord) { r.Newest.Event = otherNamespace() }), false), errRecord},
		"a newer one of another":          {apply(of(3, func(r *EntryRecord) { r.Oldest, r.Newest.Event = r.Newest, otherNamespace() }), false), errRecord},
		"an older one of another":         {apply(of(3, func(r *EntryRecord) { r.Oldest.Event = otherNamespace() }), false), errRecord},
		"an unknown outcome":              {apply(of(3, func(r *EntryRecord) { r.Merged = "" }), false), errRecord},
		"an unknown API":                  {apply(of(3, func(r *EntryRecord) { r.Newest.API = 9 }), false), errRecord},
		"no sequence":                     {apply(of(0, nil), false), errRecord},
		"more weight than claims":         {apply(of(3, func(r *EntryRecord) { r.Weight++ }), false), errRecord},
		"a negative weight":               {apply(of(3, weights(-1)), false), errRecord},
		"a large weight":                  {apply(of(3, weights(maxWeight+1)), false), errRecord},
		"a negative claim":                {apply(of(3, weights(2, -1)), false), errRecord},
		"a large claim":                   {apply(of(3, weights(2, math.MaxInt64)), false), errRecord},
		"weights that overflow":           {apply(of(3, weights(math.MaxInt64, 1)), false), errRecord},
		"a negative total":                {apply(of(3, func(r *EntryRecord) { r.Claims = []Claim{{Total: -1}} }), false), errRecord},
		"a join of what is not held":      {func(h *Held) error { return h.Join(3, 4) }, errNotHeld},
		"a join with what is not held":    {func(h *Held) error { return h.Join(2, 3) }, errNotHeld},
		"a join with another than next":   {func(h *Held) error { return h.Join(1, 3) }, errNotHeld},
		"a settlement out of order":       {func(h *Held) error { return h.Settle([]uint64{2, 1}) }, errNotHeld},
		"a settlement of what is unknown": {func(h *Held) error { return h.Settle([]uint64{1, 3}) }, errNotHeld},
	} {
		h := Hold(numbered(1), series)
		for n := range uint64(2) {
			if err := h.Apply(of(n+1, nil), false); err != nil {
				t.Fatal(err)
			}
		}
		size, bytes, before := h.size, h.Bytes(), outline(h.Records())
		if e, _ := NewEntry(&occurrence.Occurrence{}, &occurrence.Target{Event: event}); bytes != 2*e.Estimate() {
			t.Errorf("%d bytes, want twice %d", bytes, e.Estimate())
		}
		if err := test.change(h); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if h.size != size || h.Bytes() != bytes || outline(h.Records()) != before {
			t.Errorf("%s: held are %s, %d, %d bytes, before %s, %d, %d", name, outline(h.Records()), h.size, h.Bytes(), before, size, bytes)
		}
	}
}

// weights sets the weights of what is anonymous and of claims.
func weights(anonymous int64, claims ...int64) func(*EntryRecord) {
	return func(r *EntryRecord) {
		r.Anonymous, r.Weight = anonymous, anonymous
		for _, weight := range claims {
			r.Claims = append(r.Claims, Claim{Weight: weight})
			r.Weight += weight
		}
	}
}

func otherNamespace() *corev1.Event {
	e := sinktest.Event(false)
	e.Namespace = "other"
	return e
}

// A few changes at a time are applied to a clone, as a follower does, and to one without clones.
func TestCloneChangesIndependently(t *testing.T) {
	event := sinktest.Event(false)
	series := Series{Namespace: event.Namespace, Identity: SeriesIdentity{digest: identity.Of(event)}}
	cloned, plain := Hold(numbered(1), series), Hold(numbered(1), series)
	former, before, total := cloned, "", int64(0)
	for n := range uint64(2000) {
		e, claim := NewEntry(&occurrence.Occurrence{Weight: 1, Client: "client", Total: total + 1}, &occurrence.Target{Event: event})
		e.Sequence = n + 1
		r := e.record()
		r.Claims = []Claim{claim}
		change := func(h *Held) error { return h.Apply(r, h.Len() > 0 && n%3 == 0) }
		if i := rand.IntN(plain.Len() + 1); i+1 < plain.Len() && n%5 > 2 {
			first, second := plain.entries[i].Sequence, plain.entries[i+1].Sequence
			if change = func(h *Held) error { return h.Join(first, second) }; n%5 == 4 {
				change = func(h *Held) error { return h.Settle([]uint64{first, second}) }
			}
		} else {
			total++
		}
		if n%4 == 0 {
			former, before, cloned = cloned, outline(cloned.Records()), cloned.Clone()
		}
		if err := errors.Join(change(cloned), change(plain)); err != nil {
			t.Fatal(err)
		}
		if outline(former.Records()) != before {
			t.Fatalf("change %d of a clone changes the former one", n)
		}
		if outline(cloned.Records()) != outline(plain.Records()) {
			t.Fatalf("after change %d: %s, want %s", n, outline(cloned.Records()), outline(plain.Records()))
		}
	}
}

func TestPushedOut(t *testing.T) {
	var s contributors
	for i := range maxSinks {
		if s.pushedOut != nil {
			t.Errorf("%d sinks, and the list of those pushed out has begun", i)
		}
		s = s.write(numbered(i), 1)
	}
	s = s.write(numbered(0), 2)
	want := func(n int, may, mayNot int) {
		t.Helper()
		again, err := parseContributors(s.String())
		if err != nil || len(again.pushedOut) != n || !again.mayHavePushedOut(numbered(may)) || mayNot > 0 && again.mayHavePushedOut(numbered(mayNot)) {
			t.Errorf("%s, %v: %d or %d", s, err, may, mayNot)
		}
	}
	if s.mayHavePushedOut(numbered(99)) {
		t.Error("nobody was pushed out")
	}
	s = s.write(numbered(20), 1)
	want(1, 1, 99)
	s = s.write(numbered(1), 2) // comes back, and others go
	s = s.write(numbered(2), 2)
	want(3, 3, 99)
	for i := range maxSinks {
		s = s.write(numbered(30+i), 1)
	}
	want(9, 1, 99)
	for i := range maxSinks {
		s = s.write(numbered(50+i), 1)
	}
	// More were pushed out than the list takes. It has the greatest.
	want(maxPushedOut, 20, 99)
	want(maxPushedOut, 0, 8)
	s = s.write(numbered(10), 1)
	for i := range maxSinks {
		s = s.write(numbered(60+i), 1)
	}
	want(maxPushedOut, 10, 40)
	want(maxPushedOut, 9, 99)
	// The list was full before this release.
	s.pushedOut = nil
	want(0, 99, 0)
	for i := range maxSinks {
		s = s.write(numbered(80+i), 1)
		want(maxPushedOut, 99, 0)
	}
}
