package intaketest

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Pipeline is the pipeline behind an intake. It settles every occurrence with its
// function, or keeps it for the test to settle. Mu guards the fields above Recorded.
type Pipeline struct {
	Mu        sync.Mutex
	Settle    func(*occurrence.Occurrence) (occurrence.Settlement, bool)
	Deferring bool // what would be settled at once is deferred
	Got       []*occurrence.Occurrence
	Recorded  chan *occurrence.Occurrence // of those that are kept
}

// Written settles everything at once, each with a newer resourceVersion.
func Written() *Pipeline {
	version := 100
	return &Pipeline{
		Recorded: make(chan *occurrence.Occurrence, 100),
		Settle: func(*occurrence.Occurrence) (occurrence.Settlement, bool) {
			version++
			return Stored(occurrence.Created, version), true
		},
	}
}

// Kept settles nothing.
func Kept() *Pipeline {
	p := Written()
	p.Settle = func(*occurrence.Occurrence) (occurrence.Settlement, bool) { return occurrence.Settlement{}, false }
	return p
}

// Settled settles everything in the same way.
func Settled(s occurrence.Settlement) *Pipeline {
	p := Written()
	p.Settle = func(*occurrence.Occurrence) (occurrence.Settlement, bool) { return s, true }
	return p
}

// Stored is a settlement with the Event as it is stored.
func Stored(outcome occurrence.Outcome, version int) occurrence.Settlement {
	return occurrence.Settlement{Outcome: outcome, Object: &corev1.Event{ObjectMeta: metav1.ObjectMeta{
		Name: "derived.0123456789abcdef", UID: "stored-uid", ResourceVersion: strconv.Itoa(version),
		CreationTimestamp: metav1.Unix(1_700_000_000, 0),
	}}}
}

// Becomes has the pipeline settle as another one does from now on.
func (p *Pipeline) Becomes(other *Pipeline) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Settle = other.Settle
}

// WriteLater sets whether occurrences are written later from now on.
func (p *Pipeline) WriteLater(later bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Deferring = later
}

// Record is the Record of the intake's options.
func (p *Pipeline) Record(o *occurrence.Occurrence) {
	p.Mu.Lock()
	p.Got = append(p.Got, o)
	s, now := p.Settle(o)
	later := p.Deferring
	p.Mu.Unlock()
	switch {
	case now && later:
		o.Deferred()
	case now:
		o.Settled(s)
	default:
		p.Recorded <- o
	}
}

// Occurrences returns all that were recorded, in order.
func (p *Pipeline) Occurrences() []*occurrence.Occurrence {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return slices.Clone(p.Got)
}

// Taken returns the occurrences since it was called last.
func (p *Pipeline) Taken() []*occurrence.Occurrence {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	taken := p.Got
	p.Got = nil
	return taken
}

// Weights are those of all occurrences, in order.
func (p *Pipeline) Weights() []int64 {
	var weights []int64
	for _, o := range p.Occurrences() {
		weights = append(weights, o.Weight)
	}
	return weights
}

// WantWeights compares the weights of all occurrences.
func (p *Pipeline) WantWeights(t testing.TB, want ...int64) {
	t.Helper()
	if diff := cmp.Diff(want, p.Weights()); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
}

// WantRecorded compares the number of occurrences.
func (p *Pipeline) WantRecorded(t testing.TB, want int) {
	t.Helper()
	if got := len(p.Occurrences()); got != want {
		t.Errorf("%d occurrences are recorded, want %d", got, want)
	}
}
