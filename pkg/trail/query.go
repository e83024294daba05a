package trail

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/truncate"
)

// Query asks for steps.
type Query struct {
	Namespaces []string // of the Events; nil: all
	Object     Object
	Limit      int // 0: DefaultLimit
}

// chunk is the number of steps that are copied at once with the mutex held.
const chunk = 256

// Why returns the steps of an object, oldest first: of more than the limit, the newest. since is from when on all
// that happened in the namespaces of the query is known. forgotten: steps of the object have left the memory.
func (t *Trail) Why(q Query) (steps []Step, since time.Time, forgotten bool) {
	t.mu.Lock()
	var hits []hit
	for _, r := range t.match(q) {
		forgotten = forgotten || r.forgotten
		hits = appendSteps(hits, r, func(*what) bool { return true })
	}
	since = t.since(q, func(l lost) int64 { return l.steps })
	t.mu.Unlock()
	hits = newest(hits, q.Limit)
	slices.Reverse(hits)
	return t.copy(hits), since, forgotten
}

// Drops returns the steps by which occurrences were filtered or dropped, are uncertain, or would be filtered, newest
// first. since is from when on all of them are known.
func (t *Trail) Drops(q Query) (steps []Step, since time.Time) {
	t.mu.Lock()
	var hits []hit
	switch {
	case q.Object != Object{}:
		for _, r := range t.match(q) {
			hits = appendSteps(hits, r, (*what).isDrop)
		}
	case q.Namespaces == nil:
		hits = appendList(hits, &t.drops, inAll, limited(q.Limit))
	default:
		for _, name := range q.Namespaces {
			if of := t.namespaces[name]; of != nil {
				hits = appendList(hits, &of.drops, inNamespace, limited(q.Limit))
			}
		}
	}
	since = t.since(q, func(l lost) int64 { return l.drops })
	t.mu.Unlock()
	return t.copy(newest(hits, q.Limit)), since
}

// hit is a step that matches, as of a time.
type hit struct {
	*step
	at int64
}

func appendSteps(to []hit, r *trace, matches func(*what) bool) []hit {
	for _, s := range r.series {
		for _, st := range s.steps {
			if matches(&st.what) {
				to = append(to, hit{st, st.last})
			}
		}
	}
	return to
}

func appendList(to []hit, l *list, of func(*step) *links, most int) []hit {
	for st := l.newest; st != nil && most > 0; st = of(st).older {
		to = append(to, hit{st, st.last})
		most--
	}
	return to
}

func limited(limit int) int {
	if limit <= 0 {
		return DefaultLimit
	}
	return limit
}

// newest returns the newest steps, newest first. It reads nothing that changes.
func newest(of []hit, limit int) []hit {
	slices.SortStableFunc(of, func(x, y hit) int {
		return cmp.Or(cmp.Compare(y.at, x.at), cmp.Compare(y.what.rank(), x.what.rank()))
	})
	of = slices.CompactFunc(of, func(x, y hit) bool { return x.step == y.step }) // a namespace may be named twice
	return of[:min(len(of), limited(limit))]
}

// copy copies steps as they are now. They may have been evicted meanwhile.
func (t *Trail) copy(of []hit) []Step {
	steps := make([]Step, 0, len(of))
	for some := range slices.Chunk(of, chunk) {
		t.mu.Lock()
		for _, f := range some {
			steps = append(steps, f.step.copy())
		}
		t.mu.Unlock()
	}
	return steps
}

// match returns the traces that match a query. The mutex must be held.
func (t *Trail) match(q Query) (out []*trace) {
	add := func(r *trace) {
		if (q.Namespaces == nil || slices.Contains(q.Namespaces, r.key.namespace)) && q.Object.matches(&r.key.object) {
			out = append(out, r)
		}
	}
	if q.Object.Name == "" {
		for _, r := range t.traces.Values() {
			add(r)
		}
		return out
	}
	for r := t.byName[truncate.String(q.Object.Name, maxName)]; r != nil; r = r.next {
		add(r)
	}
	return out
}

func (o *Object) matches(other *Object) bool {
	return (other.Group == "" || equal(o.Group, other.Group)) && equal(o.Kind, other.Kind) && equal(o.Namespace, other.Namespace) && equal(o.Name, other.Name) && equal(string(o.UID), string(other.UID))
}

func equal(wanted, got string) bool { return wanted == "" || truncate.String(wanted, maxName) == got }

// since returns since when all that a query may ask for is known. The mutex must be held.
func (t *Trail) since(q Query, of func(lost) int64) time.Time {
	namespaces := q.Namespaces
	if namespaces == nil && q.Object.Namespace != "" {
		namespaces = []string{q.Object.Namespace} // as the apiserver requires
	}
	up := t.began.UnixNano()
	if namespaces == nil {
		return time.Unix(0, max(up, of(t.lost)))
	}
	for _, name := range namespaces {
		n := t.namespaces[name]
		if n == nil {
			n = &namespace{lost: t.elsewhere}
		}
		up = max(up, of(n.lost))
	}
	return time.Unix(0, up)
}

// copy returns the step for others. The mutex must be held.
func (st *step) copy() Step {
	s := st.series
	out := Step{
		First: time.Unix(0, st.first), Time: time.Unix(0, st.last), Action: st.what.action, Occurrences: st.occurrences,
		Outcome: st.what.outcome, Cause: st.what.cause, Detail: valid(st.detail), Rule: valid(st.what.rule), Receiver: valid(st.what.receiver),
		User: valid(s.user), Namespace: valid(s.trace.key.namespace), Event: valid(s.event), Regarding: reference(s.trace.key.object),
		Type: valid(s.eventType), Reason: valid(s.reason), Message: valid(s.message), Reporter: valid(s.reporter),
	}
	out.Regarding.FieldPath = valid(s.fieldPath)
	if st.upTo != 0 {
		out.Until = time.Unix(0, st.upTo)
	}
	return out
}

// valid returns a text that can be encoded as JSON. A client may have sent any bytes in protobuf.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func reference(o Object) Object {
	return Object{Group: valid(o.Group), Kind: valid(o.Kind), Namespace: valid(o.Namespace), Name: valid(o.Name), UID: types.UID(valid(string(o.UID)))}
}
