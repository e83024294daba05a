package sink

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/occurrence"
)

// slowly answers as a server of one namespace that is made at some time, and
// knows how many requests there are at once.
type slowly struct {
	mu             sync.Mutex
	server         *server
	made           bool
	inFlight, most int
}

func (c *slowly) do(r *request) (*corev1.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.made {
		return nil, missing("ns")
	}
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	c.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	c.mu.Lock()
	c.inFlight--
	return c.server.do(r)
}

func (c *slowly) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.do(&request{verb: verbCreate, name: event.Name, event: event})
}

func (c *slowly) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	if string(patch) == string(emptyPatch) {
		return c.do(&request{verb: verbRead, name: name})
	}
	return c.do(&request{verb: verbPatch, name: name, patch: patch})
}

// Where another writer has created all Events already, the namespace is there too.
func TestNamespaceThatIsMadeHasItsRoomThoughAnotherCreatesThere(t *testing.T) {
	c := &slowly{server: newServer()}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		c.mu.Lock()
		c.made = true
		c.mu.Unlock()
		const series = 100
		o := unlimited()
		other := &bench{t: t, ledger: b.ledger, namespace: b.namespace}
		var err error
		if other.Sink, err = New(t.Context(), c, b.ledger, o); err != nil {
			t.Fatal(err)
		}
		for i := range series {
			other.record(i)
		}
		other.Close(t.Context())
		pass(time.Minute)
		c.mu.Lock()
		c.most = 0
		c.mu.Unlock()
		b.recordLater(series, time.Hour) // so that the namespace has something to do
		for i := range series {
			b.record(i)
		}
		pass(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.most == 1 {
			t.Error("one request at a time is made in a namespace that is there")
		}
	})
}
