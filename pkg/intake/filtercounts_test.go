package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/test/seeds"
	storedevents "github.com/eventd/eventd/test/stored"
)

// memory is a slow apiserver without faults.
type memory struct {
	mu     sync.Mutex
	rng    *rand.Rand
	events map[string]*corev1.Event
}

var ofEvents = schema.GroupResource{Resource: "events"}

func (m *memory) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	return m.call(event.Name, func(before *corev1.Event) (*corev1.Event, error) {
		if before != nil {
			return nil, apierrors.NewAlreadyExists(ofEvents, event.Name)
		}
		event.UID = types.UID("uid-" + event.Name)
		return event, nil
	})
}

func (m *memory) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	return m.call(name, func(before *corev1.Event) (*corev1.Event, error) {
		if before == nil {
			return nil, apierrors.NewNotFound(ofEvents, name)
		}
		old, err := json.Marshal(before)
		if err != nil {
			return nil, err
		}
		changed, err := strategicpatch.StrategicMergePatch(old, patch, corev1.Event{})
		if err != nil {
			return nil, err
		}
		event := new(corev1.Event)
		if err := json.Unmarshal(changed, event); err != nil {
			return nil, err
		}
		if event.ResourceVersion != before.ResourceVersion {
			return nil, apierrors.NewConflict(ofEvents, name, errors.New("it has been modified"))
		}
		return event, nil
	})
}

func (m *memory) call(name string, change func(before *corev1.Event) (*corev1.Event, error)) (*corev1.Event, error) {
	m.mu.Lock()
	pause := time.Duration(m.rng.Int64N(int64(2 * time.Second)))
	m.mu.Unlock()
	time.Sleep(pause)
	m.mu.Lock()
	defer m.mu.Unlock()
	event, err := change(m.events[name])
	if err != nil {
		return nil, err
	}
	version := 1
	if before := m.events[name]; before != nil {
		version, _ = strconv.Atoi(before.ResourceVersion)
		version++
	}
	event.ResourceVersion = strconv.Itoa(version)
	m.events[name] = event
	return event.DeepCopy(), nil
}

// ruleSets are the rules that are switched while clients count.
var ruleSets = [][]v1alpha1.IntakeRule{
	nil,
	{{Name: "all", Match: "true", Drop: true}},
	{{Name: "even", Match: "event.count % 2 == 0", Drop: true}, {Name: "try", Match: "true", Drop: true, DryRun: true}},
	{{Name: "one-pod", Match: `event.involvedObject.name == "web-1"`, Drop: true}, {Name: "slow", Match: "true", Budget: &v1alpha1.Budget{Burst: 2, QPS: "1/60"}}},
	{{Name: "changed", Match: `event.message.startsWith("changed")`, Drop: true}},
}

func compiled(t *testing.T) (sets []*rules.Set) {
	t.Helper()
	for _, intake := range ruleSets {
		set, err := rules.Compile(&v1alpha1.EventdConfiguration{Intake: intake})
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	return sets
}

// Rules are switched while clients count. Each occurrence is filtered or in the count of the stored
// Event, and never both; the ledger has the same numbers.
func TestWhatIsFilteredIsInNoCount(t *testing.T) {
	sets := compiled(t)
	for seed := range seeds.Of(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newCounting(t, seed, sets).run() })
		})
	}
}

// counting is a run of clients that count, each of one name, about one Pod.
type counting struct {
	*server
	t      *testing.T
	rng    *rand.Rand
	sets   []*rules.Set
	rules  *rules.Intake
	pipe   *pipeline.Pipeline
	memory *memory

	mu       sync.Mutex
	totals   map[string]int64 // what each client has reported
	filtered map[string]int64
	requests sync.WaitGroup
}

func newCounting(t *testing.T, seed uint64, sets []*rules.Set) *counting {
	t.Helper()
	c := &counting{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), sets: sets, totals: map[string]int64{}, filtered: map[string]int64{},
		memory: &memory{rng: rand.New(rand.NewPCG(seed, 1)), events: map[string]*corev1.Event{}},
	}
	var err error
	if c.rules, err = rules.NewIntake(nil); err != nil {
		t.Fatal(err)
	}
	options := pipeline.DefaultOptions()
	if c.pipe, err = pipeline.New(t.Context(), options); err == nil {
		err = c.pipe.StartSink(c.memory)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.server = serve(t, written(), withOptions(func(o *intake.Options) {
		o.Record, o.Rules = c.pipe.Record, c.rules.Decide
		o.Filter = func(o *occurrence.Occurrence, rule occurrence.Reason) {
			c.mu.Lock()
			c.filtered[o.Client] += o.Weight
			c.mu.Unlock()
			c.pipe.Filter(o, rule)
		}
	}))
	return c
}

func (c *counting) run() {
	for range 80 {
		switch n := c.rng.IntN(20); {
		case n < 3:
			c.rules.Use(c.sets[c.rng.IntN(len(c.sets))])
		case n < 6:
			time.Sleep(time.Duration(c.rng.Int64N(int64(40 * time.Second))))
		default:
			c.raise(c.rng.IntN(4), c.rng.Int64N(4), c.rng.IntN(2) == 0)
		}
		if c.rng.IntN(2) == 0 {
			c.requests.Wait()
		}
	}
	c.requests.Wait()
	ctx, cancel := context.WithTimeout(c.t.Context(), 24*time.Hour)
	defer cancel()
	if err := c.pipe.Shutdown(ctx); err != nil {
		c.t.Error(err)
	}
	c.check()
}

// raise reports a higher total of a client, or the same one with another message. The request is not
// waited for.
func (c *counting) raise(client int, by int64, changed bool) {
	name := fmt.Sprint("n", client)
	c.mu.Lock()
	if c.totals[name] == 0 {
		by = max(1, by)
	}
	c.totals[name] += by
	total := c.totals[name]
	c.mu.Unlock()
	event := classic(name, int32(total))
	event.InvolvedObject.Name = fmt.Sprint("web-", client)
	if changed {
		event.Message = fmt.Sprint("changed ", total)
	}
	c.requests.Go(func() {
		// As client-go: patch, and post if there is nothing to patch.
		for code := 0; code != 200 && code != 201 && code != 202; {
			a := c.Patch(c.t, name, `{"count":%d,"message":%q}`, total, event.Message)
			if a.Code == http.StatusNotFound {
				a = c.Post(c.t, event)
			}
			if code = a.Code; code >= 300 && code != http.StatusConflict { // another request has posted it
				c.t.Errorf("answered %d: %s", code, a.Body)
				return
			}
		}
	})
}

func (c *counting) check() {
	var events []corev1.Event
	for _, event := range c.memory.events {
		events = append(events, *event)
	}
	counts := storedevents.Tally(events, func(e *corev1.Event) string { return "n" + e.InvolvedObject.Name[len("web-"):] })
	var filtered int64
	for name, total := range c.totals {
		if counts[name]+c.filtered[name] != total {
			c.t.Errorf("%s has reported %d: %d are stored, %d filtered", name, total, counts[name], c.filtered[name])
		}
		filtered += c.filtered[name]
	}
	totals := c.pipe.Totals()
	if totals.Pending() != 0 || totals.Written() != counts.Sum() || totals.Outcomes[occurrence.Filtered] != filtered ||
		totals.Recorded != totals.Written()+filtered+totals.Outcomes[occurrence.Replayed] {
		c.t.Errorf("%d are stored, %d filtered; the ledger has %+v", counts.Sum(), filtered, totals)
	}
}
