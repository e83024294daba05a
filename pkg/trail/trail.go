package trail

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/increase"
)

// Trail is safe for concurrent use. Make it with New.
type Trail struct {
	limits
	evictions prometheus.Counter
	hash      hash

	mu     sync.Mutex
	began  time.Time // of what is known without a gap: when it was made, or its process began to lead
	traces *fairlru.Cache[key, flow, *trace]
	bytes  int64
	byName map[string]*trace // of the object: the newest trace
	drops  list
	// namespaces have traces, or have had some that were evicted. Of all others that were evicted,
	// elsewhere is the newest time.
	namespaces map[string]*namespace
	empty      int // namespaces without traces
	elsewhere  lost
	lost       lost // of all

	unfed    []*series // for the sketches
	fed      time.Time // when they were fed
	all      board
	ranked   *fairlru.Cache[string, struct{}, *board] // by namespace, all in one group
	unranked time.Time                                // until then, namespaces have lost their boards
	// live is the bytes of boards of which a slot is within MaxWindow, as counted at counted and since then.
	live       int64
	counted    time.Time
	observed   *increase.Counts
	unreported bool // Options.Unreported

	log stepLog
}

// namespace is what is known of a namespace.
type namespace struct {
	traces int
	drops  list
	lost   lost
}

// lost is the time of the newest step that has left the memory, and of the newest drop of them, in
// nanoseconds. All that was later is known.
type lost struct{ steps, drops int64 }

func (l *lost) raise(to lost) {
	l.steps, l.drops = max(l.steps, to.steps), max(l.drops, to.drops)
}

// maxNamespaces bounds the namespaces without traces of which it is known what was evicted.
const maxNamespaces = 1024

// New returns a trail that remembers nothing. An error is one of the options or of registering metrics.
func New(o Options) (*Trail, error) {
	l, err := o.limits()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &Trail{
		limits: l, began: now, hash: newHash(),
		byName: make(map[string]*trace), namespaces: make(map[string]*namespace),
		fed: now, all: board{lgKeys: l.lgKeys},
		observed: increase.New(l.counts), unreported: o.Unreported,
		log: stepLog{maxBytes: l.followed},
	}
	t.traces = fairlru.New[key, flow](l.steps, t.evicted)
	t.ranked = fairlru.New[string, struct{}](l.boards, t.boardEvicted)
	return t, t.register(o.Registerer)
}

// BeginTerm says that the process begins to lead: what was before was done by another one.
func (t *Trail) BeginTerm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = time.Now()
}

// traceOf returns the trace of an Event that a user has reported. The mutex must be held.
func (t *Trail) traceOf(e *corev1.Event, user string) *trace {
	k := keyOf(e, user)
	if r, ok := t.traces.Get(k); ok {
		return r
	}
	k = k.clone()
	of := t.namespace(k.namespace)
	if of.traces++; of.traces == 1 {
		t.empty--
	}
	r := &trace{key: k, bytes: traceBytes + k.bytes(), next: t.byName[k.object.Name]}
	if r.next != nil {
		r.next.previous = r
	}
	t.byName[k.object.Name] = r
	return r // the end of the addition charges it
}

// namespace returns what is known of a namespace. The mutex must be held.
func (t *Trail) namespace(name string) *namespace {
	n := t.namespaces[name]
	if n == nil {
		n = &namespace{lost: t.elsewhere}
		t.namespaces[name] = n
		t.empty++
	}
	return n
}

// charge tells the cache what a trace takes, and adds it if it is new. It may evict, also the trace itself. The
// mutex must be held.
func (t *Trail) charge(r *trace) {
	if r.charged == r.bytes {
		return
	}
	t.bytes += r.bytes - r.charged
	r.charged = r.bytes
	t.traces.Add(r.key, r.key.flow, r, r.bytes)
}

// evicted is called for a trace that has left the cache. The mutex is held.
func (t *Trail) evicted(_ key, r *trace) {
	t.evictions.Inc()
	t.bytes -= r.charged
	of := t.namespaces[r.key.namespace]
	for _, s := range r.series {
		for _, st := range s.steps {
			t.forget(st, of)
		}
	}
	t.lose(of, lost{steps: r.last})
	switch {
	case r.previous != nil:
		r.previous.next = r.next
	case r.next != nil:
		t.byName[r.key.object.Name] = r.next
	default:
		delete(t.byName, r.key.object.Name)
	}
	if r.next != nil {
		r.next.previous = r.previous
	}
	if of.traces--; of.traces == 0 {
		t.empty++
	}
	if t.empty > maxNamespaces {
		t.forgetNamespaces()
	}
}

// forgetNamespaces forgets when others than those that have traces have lost some. The mutex must be held.
func (t *Trail) forgetNamespaces() {
	maps.DeleteFunc(t.namespaces, func(_ string, n *namespace) bool {
		if n.traces == 0 {
			t.elsewhere.raise(n.lost)
		}
		return n.traces == 0
	})
	t.empty = 0
}

// forget removes a step from the lists. The mutex must be held.
func (t *Trail) forget(st *step, of *namespace) {
	if st.drops.linked {
		t.drops.remove(st, inAll)
		of.drops.remove(st, inNamespace)
		t.lose(of, lost{drops: st.last})
	}
}

func (t *Trail) lose(of *namespace, l lost) {
	of.lost.raise(l)
	t.lost.raise(l)
}

// trim removes the oldest steps of a trace that has too many, except for a given one. The mutex must be held.
func (t *Trail) trim(r *trace, but *step) {
	for r.steps > maxSteps {
		st := r.oldest(but)
		s := st.series
		t.forget(st, t.namespaces[r.key.namespace])
		s.steps = slices.DeleteFunc(s.steps, func(other *step) bool { return other == st })
		r.steps--
		r.bytes -= st.bytes()
		r.forgotten = true
		if len(s.steps) == 0 {
			r.series = slices.DeleteFunc(r.series, func(other *series) bool { return other == s })
			r.bytes -= s.bytes()
		}
	}
}
