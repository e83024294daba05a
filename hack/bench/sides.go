package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// side is one way to get a load written: it returns when nothing of it is left to
// be written.
type side func(context.Context, *rest.Config, load) (effort, error)

// markerNamespace is one that exists and that no load is in.
const markerNamespace = metav1.NamespaceDefault

// unlimited are eventd's defaults without its limit of requests per second, which
// no other side has.
func unlimited() pipeline.Options {
	o := pipeline.DefaultOptions()
	o.Sink.QPS = math.Inf(1)
	return o
}

// running is a pipeline of eventd that writes through a connection.
type running struct {
	*pipeline.Pipeline
	*connection
	recorder record.EventRecorder
}

// startEventd makes one. The caller owes a stop.
func startEventd(ctx context.Context, config *rest.Config, o pipeline.Options) (*running, error) {
	c, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	p, err := startPipeline(sink.NewClient(c.CoreV1().RESTClient(), c.EventsV1().RESTClient()), o)
	if err != nil {
		c.close()
		return nil, err
	}
	return &running{Pipeline: p, connection: c, recorder: p.NewRecorder(scheme.Scheme, source)}, nil
}

func startPipeline(client sink.Client, o pipeline.Options) (*pipeline.Pipeline, error) {
	p, err := pipeline.New(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return p, p.StartSink(client)
}

// stop gives up what is not written yet.
func (r *running) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx) // says what was given up
	r.close()
}

// byEventd counts what its ledger says is written.
func byEventd(ctx context.Context, config *rest.Config, l load) (effort, error) {
	r, err := startEventd(ctx, config, unlimited())
	if err != nil {
		return effort{}, err
	}
	defer r.stop()
	return exert(len(l.objects), func() (int, error) {
		l.record(r.recorder)
		if err := r.settle(ctx, len(l.objects)); err != nil {
			return 0, err
		}
		return int(r.Totals().Written()), nil
	})
}

// settle waits until all of so many distinct occurrences are written or dropped.
func (r *running) settle(ctx context.Context, occurrences int) error {
	// What finds the queue full is dropped while it is recorded.
	dropped := int(r.Totals().Outcomes[occurrence.Dropped])
	if err := r.traffic.waitCreated(ctx, occurrences-dropped); err != nil {
		return fmt.Errorf("%w; %+v", err, r.Totals())
	}
	// The last answer is on its way from the connection to the ledger.
	return r.Shutdown(ctx)
}

// byClientGo counts what the apiserver says is created. What client-go drops it
// tells nobody, so that the end is when it has written a marker, which was
// recorded last.
func byClientGo(ctx context.Context, config *rest.Config, l load) (effort, error) {
	c, err := connect(ctx, config)
	if err != nil {
		return effort{}, err
	}
	defer c.close()
	recorder, shutdown := startClientGo(c)
	defer shutdown()
	return exert(len(l.objects), func() (int, error) {
		l.record(recorder)
		if err := recordMarker(ctx, recorder, c.traffic); err != nil {
			return 0, err
		}
		return c.traffic.createdOutside(markerNamespace), nil
	})
}

func startClientGo(c *connection) (recorder record.EventRecorder, shutdown func()) {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
	return b.NewRecorder(scheme.Scheme, source), b.Shutdown
}

// recordMarker records one until it was written: it is dropped while the queue is
// full.
func recordMarker(ctx context.Context, r record.EventRecorder, t *traffic) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	marker := podIn(markerNamespace, int(time.Now().UnixNano()%1e9))
	before := t.createdIn(markerNamespace)
	for t.createdIn(markerNamespace) == before {
		report(r, marker)
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.New("client-go has not come to the end of its queue in time")
		}
	}
	return nil
}

// bareWays is how many requests the bare client makes at once: as many as eventd
// does at most.
const bareWays = 128

// byBareClient creates the very Events that eventd would, and does nothing else.
func byBareClient(ctx context.Context, config *rest.Config, l load) (effort, error) {
	events, err := eventsOf(ctx, l)
	if err != nil {
		return effort{}, err
	}
	c, err := connect(ctx, config)
	if err != nil {
		return effort{}, err
	}
	defer c.close()
	return exert(len(l.objects), func() (int, error) {
		if err := createAll(ctx, c, events); err != nil {
			return 0, err
		}
		return len(events), nil
	})
}

func createAll(ctx context.Context, c *connection, events []*corev1.Event) error {
	queue := make(chan *corev1.Event, len(events))
	for _, e := range events {
		queue <- e
	}
	close(queue)
	errs := make([]error, bareWays)
	var ways sync.WaitGroup
	for way := range errs {
		ways.Go(func() {
			for e := range queue {
				if _, err := c.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
					errs[way] = err
					return
				}
			}
		})
	}
	ways.Wait()
	return errors.Join(errs...)
}

// eventsOf returns the Events that eventd creates for a load.
func eventsOf(ctx context.Context, l load) ([]*corev1.Event, error) {
	kept := &keeper{}
	p, err := startPipeline(kept, unlimited())
	if err != nil {
		return nil, err
	}
	load{objects: l.objects}.record(p.NewRecorder(scheme.Scheme, source))
	if err := p.Shutdown(ctx); err != nil {
		return nil, err
	}
	if len(kept.events) != len(l.objects) {
		return nil, fmt.Errorf("eventd creates %d Events of %d occurrences", len(kept.events), len(l.objects))
	}
	return kept.events, nil
}

// keeper is a sink.Client that keeps what it is to create, and takes its time.
type keeper struct {
	takes  time.Duration
	mu     sync.Mutex
	events []*corev1.Event
}

func (k *keeper) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	time.Sleep(k.takes)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, event)
	stored := event.DeepCopy()
	stored.UID, stored.ResourceVersion = "uid", "1"
	return stored, nil
}

func (k *keeper) Patch(context.Context, occurrence.API, string, string, []byte) (*corev1.Event, error) {
	return nil, errors.New("all Events are new")
}
