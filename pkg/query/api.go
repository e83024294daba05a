package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/violations"
	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
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
	// Group is the API group in the paths. "" is v1alpha1.GroupName.
	Group string
	// Identity is the name of this replica.
	Identity string
	// Role is what the process is for, as answers say it: intake, observe, or all for both.
	Role string
	// Gatherer has the metrics of /metrics. Required.
	Gatherer prometheus.Gatherer
	// Status returns what a PipelineStatus has beside the leader and figures. Receivers have no figures yet.
	// It is called for status only. Required.
	Status func() v1alpha1.PipelineStatus
	// Leader returns the leader that this replica knows, nil for none. nil means that there never is one.
	Leader func() *v1alpha1.Leader
	// Leading reports whether this replica leads. nil means always.
	Leading func() bool
	// Relay has the leader answer a request in the name of the user in its context. The caller closes the
	// body of the response. nil if there are no other replicas.
	Relay func(ctx context.Context, req *http.Request) (*http.Response, error)
	// Stopping is closed when the process shuts down. nil is never.
	Stopping <-chan struct{}
}

func (o *Options) validate() error {
	var v violations.List
	v.AddIf(o.Gatherer == nil, "Gatherer is required")
	v.AddIf(o.Status == nil, "Status is required")
	return v.Err()
}

// API answers queries: it is intake.Queries. Make it with New.
type API struct {
	options Options
	figures *figures
	matches *matches
	// answers are the turns in which answers are made and encoded.
	answers   *fairqueue.Turns
	encodings *encodings
	batches   *batches
	tails     atomic.Int64 // that were opened

	leaderChanges notify.Notifier
}

// New returns an API.
func New(o Options) (*API, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	matches, err := newMatches()
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	count := max(1, runtime.GOMAXPROCS(0)/4)
	answers, err := fairqueue.NewTurns("answers", count, count, answerRest, maxTails)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return &API{options: o, figures: newFigures(o.Gatherer), matches: matches, answers: answers, encodings: newEncodings(), batches: newBatches()}, nil
}

// Run samples the metrics, for rates, until ctx ends. Without it, figures have none. It must be called once.
func (a *API) Run(ctx context.Context) error {
	a.figures.run(ctx)
	return nil
}

// LeaderChanged ends the watches that a leader answers. It must be called when another replica leads, or
// none, and does not block.
func (a *API) LeaderChanged() { a.leaderChanges.Notify() }

func (a *API) leading() bool { return a.options.Leading == nil || a.options.Leading() }

// leader returns the leader that this replica knows, nil for none.
func (a *API) leader() *v1alpha1.Leader {
	if a.options.Leader == nil {
		return nil
	}
	return a.options.Leader()
}

// GroupVersion returns that of the paths. Objects say v1alpha1.GroupVersion.
func (a *API) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: cmp.Or(a.options.Group, v1alpha1.GroupName), Version: v1alpha1.GroupVersion.Version}
}

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

// Query checks a request and the rights of its caller, and returns what writes the answer. With watch, the
// answer takes minutes, and needs a request whose context ends when its client goes away; it flushes what
// it writes. An error is the Status of the answer.
func (a *API) Query(req intake.Query) (answer http.HandlerFunc, watch bool, err error) {
	q, err := parse(req.Resource, req.URL.Query(), req.Header)
	if err != nil {
		return nil, false, err
	}
	if err := a.served(q); err != nil {
		return nil, false, err
	}
	q.caller, q.wait = req.Caller, req.Wait
	r := rights{authorize: req.Authorize, answering: req.Answering, namespaces: q.Namespaces, watch: q.Watch}
	if q.resource == resourceStatus {
		r.namespaces = nil
	}
	if _, err := r.review(req.Context(), nil); err != nil {
		return nil, false, err
	}
	if q.expression != "" {
		q.wait(req.Context(), func() { q.match, err = a.matches.compile(req.Context(), q.caller, q.expression) })
		if err != nil {
			return nil, false, err
		}
	}
	if a.isOfLeader(q) {
		// Before it is read who leads: a change after that ends the watch.
		changed := a.leaderChanges.Changed()
		switch {
		case a.leading():
			q.changed = changed
		case req.Relayed:
			return nil, false, intake.Unavailable(1, "this replica does not lead")
		case a.options.Relay != nil && !(q.resource == resourceStatus && a.leader() == nil):
			return a.relayed(req, q, changed), q.Watch, nil
		case q.resource != resourceStatus:
			return nil, false, intake.Unavailable(1, "this replica does not lead")
		default: // until somebody leads
			q.changed = changed
		}
	}
	if q.steps || q.resource == resourceWhy || q.resource == resourceDrops {
		r.reviewOperator(req.Context())
		q.operator = r.operator
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
		err := apierrors.NewNotFound(a.GroupVersion().WithResource(resourceTail).GroupResource(), "")
		err.ErrStatus.Message = "this eventd has no history, so tail has no events: a process that observes has them, with --history-bytes"
		return err
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
		ctx := req.Context()
		object, err := a.object(ctx, q)
		var data []byte
		if err == nil {
			err = a.work(ctx, q, func() (err error) {
				data, err = json.Marshal(object)
				return err
			})
		}
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, data)
	}
}

// answerRest is for how long answers rest after each turn, in times of what it took: so they take an eighth of the
// processors, or half of one.
const answerRest = 1

// work calls a function when it is the turn of the tenant of a query, without its seat. Its error is that of the
// function, the cause of ctx, or 503.
func (a *API) work(ctx context.Context, q *query, f func() error) (err error) {
	q.wait(ctx, func() {
		var failed error
		if err = inTurn(ctx, a.answers, q.caller, func() { failed = f() }); err == nil {
			err = failed
		}
	})
	return err
}

// object returns the answer to a query.
func (a *API) object(ctx context.Context, q *query) (object any, err error) {
	var found history.Result
	if of, reads := a.historyQuery(q); reads {
		if found, err = a.list(ctx, q, of); err != nil {
			return nil, err
		}
		defer found.Release()
	}
	err = a.work(ctx, q, func() (err error) {
		switch q.resource {
		case resourceStatus:
			object, err = a.status()
		case resourceTop:
			object = a.top(q)
		case resourceTimeline:
			object = timeline(q, found)
		case resourceWhy:
			object = a.why(q, found)
		default:
			object = a.drops(q)
		}
		return err
	})
	return object, err
}

// historyQuery returns what an answer needs of the history, if anything.
func (a *API) historyQuery(q *query) (of history.Query, reads bool) {
	o := &q.Object
	object := history.Object{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	of = history.Query{Namespaces: q.Namespaces, Object: object, Limit: q.limit, Caller: q.caller}
	switch {
	case q.resource == resourceTimeline:
		of.Reason, of.Type, of.Reporter = q.reason, q.eventType, q.reporter
		of.Since, of.Until, of.AllVersions = q.since, q.until, q.allVersions
		return of, true
	case q.resource == resourceWhy && a.options.History != nil:
		return of, true
	}
	return of, false
}

// sees reports whether the query is about the Events of a namespace.
func (q *query) sees(namespace string) bool {
	return q.Namespaces == nil || slices.Contains(q.Namespaces, namespace)
}
