package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/pkg/trail"
)

// The resources.
const (
	resourceStatus   = "status"
	resourceTop      = "top"
	resourceTimeline = "timeline"
	resourceWhy      = "why"
	resourceDrops    = "drops"
	resourceTail     = "tail"
)

// Options of an API.
type Options struct {
	// History is what this replica has observed. Without it there is no timeline, and tail has no Events.
	History *history.History
	// Trail is what this replica did. Without it there are no top, why and drops, and tail has no steps.
	Trail *trail.Trail
	// Gatherer has the metrics of /metrics. Required.
	Gatherer prometheus.Gatherer
	// Status returns what a PipelineStatus has beside figures. Receivers have no figures yet. Required.
	Status func() v1alpha1.PipelineStatus
	// Leading reports whether this replica leads. nil means always.
	Leading func() bool
	// Relay has the leader answer a request in the name of the user in its context. The caller closes the
	// body of the response. nil if there are no other replicas.
	Relay func(ctx context.Context, req *http.Request) (*http.Response, error)
	// Stopping is closed when the process shuts down. nil is never.
	Stopping <-chan struct{}
}

func (o *Options) validate() error {
	var errs []error
	for _, required := range []struct {
		field   string
		missing bool
	}{{"Gatherer", o.Gatherer == nil}, {"Status", o.Status == nil}} {
		if required.missing {
			errs = append(errs, fmt.Errorf("%s is required", required.field))
		}
	}
	return errors.Join(errs...)
}

// API answers queries. Make it with New.
type API struct {
	options Options
	figures *figures
	matches *matches

	mu     sync.Mutex
	leader chan struct{} // closed when the leader changes
}

// New returns an API.
func New(o Options) (*API, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return &API{options: o, figures: newFigures(o.Gatherer), matches: newMatches(), leader: make(chan struct{})}, nil
}

// LeaderChanged ends the watches that a leader answers. It must be called when another replica leads, or
// none, and does not block.
func (a *API) LeaderChanged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.leader)
	a.leader = make(chan struct{})
}

// leaderChange returns what is closed at the next change.
func (a *API) leaderChange() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leader
}

func (a *API) leading() bool { return a.options.Leading == nil || a.options.Leading() }

// GroupVersion returns that of the API.
func (a *API) GroupVersion() schema.GroupVersion { return v1alpha1.GroupVersion }

// Resources returns what is served. The only verb is get, so that no controller lists or watches them.
func (a *API) Resources() []metav1.APIResource {
	var out []metav1.APIResource
	add := func(served bool, name, kind string) {
		if served {
			out = append(out, metav1.APIResource{Name: name, SingularName: name, Kind: kind, Verbs: metav1.Verbs{"get"}})
		}
	}
	h, t := a.options.History != nil, a.options.Trail != nil
	add(true, resourceStatus, "PipelineStatus")
	add(t, resourceTop, "Top")
	add(h, resourceTimeline, "Timeline")
	add(t, resourceWhy, "Explanation")
	add(t, resourceDrops, "DropList")
	add(h || t, resourceTail, "TailItem")
	return out
}

// Request is a GET of a resource of Resources. Its authenticated caller is in its context.
type Request struct {
	*http.Request
	// Resource is the name of the resource.
	Resource string
	// Relayed is true if another replica has sent it.
	Relayed   bool
	Authorize Authorize
}

// Query checks a request and the rights of its caller, and returns what writes the answer. With watch, the
// answer takes minutes, and needs a request whose context ends when its client goes away; it flushes what
// it writes. An error is the Status of the answer.
func (a *API) Query(req Request) (answer http.HandlerFunc, watch bool, err error) {
	q, err := parse(req.Resource, req.URL.Query(), req.Header)
	if err != nil {
		return nil, false, err
	}
	if err := a.served(q); err != nil {
		return nil, false, err
	}
	r := rights{authorize: req.Authorize, namespaces: q.Namespaces, watch: q.Watch}
	if q.resource == resourceStatus {
		r.namespaces = nil
	}
	if _, err := r.review(req.Context()); err != nil {
		return nil, false, err
	}
	if q.expression != "" { // to compile it takes a while
		if q.match, err = rules.CompileExpression(q.expression, v1alpha1.ParamMatch); err != nil {
			return nil, false, apierrors.NewBadRequest(err.Error())
		}
	}
	if a.isOfLeader(q) {
		// Before it is read who leads: a change after that ends the watch.
		changed := a.leaderChange()
		switch {
		case a.leading():
			q.changed = changed
		case req.Relayed:
			return nil, false, unavailable("this replica does not lead")
		case a.options.Relay != nil && !(q.resource == resourceStatus && a.options.Status().Leader == nil):
			return a.relayed(req, q, changed), q.Watch, nil
		case q.resource != resourceStatus:
			return nil, false, unavailable("this replica does not lead")
		default: // until somebody leads
			q.changed = changed
		}
	}
	if q.Watch {
		return a.watching(q, r), true, nil
	}
	return a.get(q), false, nil
}

// served returns an error if a part of the resource has no source.
func (a *API) served(q *query) error {
	if q.resource != resourceTail {
		return nil
	}
	switch {
	case q.events && a.options.History == nil:
		return apierrors.NewBadRequest("this eventd has no history (--history-bytes), so tail has no events")
	case q.steps && a.options.Trail == nil:
		return apierrors.NewBadRequest("this eventd has no trail (--trail-bytes), so tail has no steps")
	}
	return nil
}

// isOfLeader reports whether only the leader knows the answer.
func (a *API) isOfLeader(q *query) bool {
	switch q.resource {
	case resourceTimeline:
		return false
	case resourceTail:
		return q.steps
	default:
		return !q.local
	}
}

// get returns what answers a query once.
func (a *API) get(q *query) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		object, err := a.object(req.Context(), q)
		if err != nil {
			writeError(w, err)
			return
		}
		writeObject(w, object)
	}
}

// object returns the answer to a query.
func (a *API) object(ctx context.Context, q *query) (any, error) {
	switch q.resource {
	case resourceStatus:
		return a.status()
	case resourceTop:
		return a.top(q), nil
	case resourceTimeline:
		return a.timeline(ctx, q)
	case resourceWhy:
		return a.why(ctx, q)
	default:
		return a.drops(q), nil
	}
}

// sees reports whether the query is about the Events of a namespace.
func (q *query) sees(namespace string) bool {
	return q.Namespaces == nil || slices.Contains(q.Namespaces, namespace)
}
