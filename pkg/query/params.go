package query

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/pkg/trail"
)

const (
	// maxParam limits a parameter, in bytes, and maxMatch an expression, which is compiled.
	maxParam, maxMatch = 1 << 10, 2 << 10
	// maxCursor limits a resourceVersion.
	maxCursor = 128
	// maxWatched limits the items of an object that is watched: 64 watches send theirs every second.
	maxWatched = 200
	// dropsLimit is the default of drops and top: what one looks at.
	dropsLimit, topLimit = 100, 20
)

// parameters are those of each resource, beside watch, timeout and pretty.
var parameters = map[string][]string{
	resourceStatus: {v1alpha1.ParamLocal},
	resourceTop:    {v1alpha1.ParamNamespace, v1alpha1.ParamBy, v1alpha1.ParamSince, v1alpha1.ParamLimit},
	resourceTimeline: {v1alpha1.ParamNamespace, v1alpha1.ParamGroup, v1alpha1.ParamKind, v1alpha1.ParamName, v1alpha1.ParamUID, v1alpha1.ParamReason,
		v1alpha1.ParamType, v1alpha1.ParamReporter, v1alpha1.ParamSince, v1alpha1.ParamUntil, v1alpha1.ParamLimit, v1alpha1.ParamVersions},
	resourceWhy:   {v1alpha1.ParamNamespace, v1alpha1.ParamGroup, v1alpha1.ParamKind, v1alpha1.ParamName, v1alpha1.ParamUID, v1alpha1.ParamLimit},
	resourceDrops: {v1alpha1.ParamNamespace, v1alpha1.ParamGroup, v1alpha1.ParamKind, v1alpha1.ParamName, v1alpha1.ParamUID, v1alpha1.ParamLimit},
	resourceTail:  {v1alpha1.ParamNamespace, v1alpha1.ParamMatch, v1alpha1.ParamInclude, v1alpha1.ParamResourceVersion},
}

// Parameters that apiservers and replicas add, and kubectl may.
const paramTimeout, paramPretty = "timeout", "pretty"

// query is a request that was read.
type query struct {
	resource string
	// caller and wait are those of intake.Query.
	caller string
	wait   func(ctx context.Context, wait func())
	// Namespaces are those of the Events, nil for all.
	Namespaces []string
	Object     v1alpha1.ObjectReference

	reason, eventType, reporter string
	since, until                time.Time
	window                      time.Duration
	limit                       int
	allVersions                 bool
	by                          string
	local                       bool

	Watch bool
	sse   bool // server-sent events
	// compressed: the client gets gzip.
	compressed bool
	match      *rules.Expression
	// expression is that of match, which is compiled after the caller is authorized.
	expression    string
	events, steps bool
	after         string // resourceVersion
	// operator: the caller may list Events in all namespaces, and sees what belongs to the operator.
	operator bool
	// changed is closed when the leader changes. It is nil for what is not the leader's.
	changed <-chan struct{}
}

// parse reads the parameters of a query. Its errors are 400.
func parse(resource string, values url.Values, header http.Header) (*query, error) {
	p := &parser{resource: resource, values: values}
	q := &query{
		resource:   resource,
		Namespaces: p.namespaces(),
		Object: v1alpha1.ObjectReference{
			Group: p.text(v1alpha1.ParamGroup), Kind: p.text(v1alpha1.ParamKind), Name: p.text(v1alpha1.ParamName), UID: types.UID(p.text(v1alpha1.ParamUID)),
		},
		reason:     p.text(v1alpha1.ParamReason),
		eventType:  p.text(v1alpha1.ParamType),
		reporter:   p.text(v1alpha1.ParamReporter),
		until:      p.time(v1alpha1.ParamUntil),
		by:         p.oneOf(v1alpha1.ParamBy, "object", "reason", "namespace", "reporter"),
		expression: p.limited(v1alpha1.ParamMatch, maxMatch),
		after:      p.text(v1alpha1.ParamResourceVersion),
		local:      p.flag(v1alpha1.ParamLocal),
		Watch:      p.flag(v1alpha1.ParamWatch),
		sse:        acceptsSSE(header),
	}
	q.allVersions = p.oneOf(v1alpha1.ParamVersions, "latest", "all") == "all"
	switch resource {
	case resourceTop:
		q.window = p.windowUntilNow()
		q.limit = p.limit(topLimit)
	case resourceDrops:
		q.limit = p.limit(dropsLimit)
	default:
		q.since = p.time(v1alpha1.ParamSince)
		q.limit = p.limit(v1alpha1.DefaultLimit)
		if !q.until.IsZero() && q.until.Before(q.since) {
			p.failed(v1alpha1.ParamUntil, "is before since: both are times, or durations before now")
		}
	}
	if q.Watch {
		q.limit = min(q.limit, maxWatched)
	}
	named := q.Object.Name != ""
	if resource == resourceWhy && !named || resource == resourceDrops && !named && q.Object != (v1alpha1.ObjectReference{}) {
		// The trail would look at each object, while reports wait for it.
		p.failed(v1alpha1.ParamName, "is required: what is known of an object is found by its name")
	}
	q.include(p, header)
	q.compressed = q.shared() && acceptsGzip(header)
	p.unknown()
	return q, p.err
}

// shared reports whether others may be sent the same: there is no expression, whose time is that of a tenant.
func (q *query) shared() bool { return q.resource == resourceTail && q.expression == "" }

// include reads what is of tail alone, and checks what can be watched.
func (q *query) include(p *parser, header http.Header) {
	watchable := q.resource != resourceTimeline && q.resource != resourceWhy
	switch {
	case q.Watch && !watchable:
		p.failed(v1alpha1.ParamWatch, q.resource+" cannot be watched: tail can")
	case q.resource != resourceTail:
		return
	case !q.Watch:
		p.failed(v1alpha1.ParamWatch, "tail needs watch=true")
	}
	for part := range strings.SplitSeq(p.text(v1alpha1.ParamInclude), ",") {
		switch part {
		case "", "events":
			q.events = true
		case "steps":
			q.steps = true
		default:
			p.failed(v1alpha1.ParamInclude, "must be events, steps or both, separated by a comma")
		}
	}
	// A browser resumes by itself.
	if last := header.Get("Last-Event-Id"); q.sse && last != "" {
		q.after = last
	}
	// It is sent back, in a line of its own. What it means the history decides.
	if len(q.after) > maxCursor || strings.ContainsFunc(q.after, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.failed(v1alpha1.ParamResourceVersion, "is none that a tail has sent")
	}
}

// parser reads parameters, and keeps the first error.
type parser struct {
	resource string
	values   url.Values
	err      error
}

func (p *parser) failed(name, why string) {
	if p.err == nil {
		p.err = apierrors.NewBadRequest(fmt.Sprintf("parameter %s: %s", name, why))
	}
}

// unknown fails for a parameter that the resource does not have: a namespace that is misspelt must not
// widen a query.
func (p *parser) unknown() {
	for name := range p.values {
		switch name {
		case v1alpha1.ParamWatch, paramTimeout, paramPretty:
		default:
			if !slices.Contains(parameters[p.resource], name) {
				p.failed(strconv.Quote(truncate.String(name, 64)), p.resource+" does not have it")
			}
		}
	}
}

func (p *parser) limited(name string, limit int) string {
	values := p.values[name]
	switch {
	case len(values) == 0:
		return ""
	case len(values) > 1:
		p.failed(name, "must not be repeated")
	case len(values[0]) > limit:
		p.failed(name, fmt.Sprintf("must have at most %d bytes", limit))
	}
	return values[0]
}

func (p *parser) text(name string) string { return p.limited(name, maxParam) }

func (p *parser) namespaces() []string {
	var out []string
	for _, name := range p.values[v1alpha1.ParamNamespace] {
		if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
			p.failed(v1alpha1.ParamNamespace, messages[0])
			return nil
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
		if len(out) > v1alpha1.MaxNamespaces {
			p.failed(v1alpha1.ParamNamespace, fmt.Sprintf("there must be at most %d", v1alpha1.MaxNamespaces))
			return nil
		}
	}
	return out
}

func (p *parser) oneOf(name, initial string, others ...string) string {
	value := p.text(name)
	switch {
	case value == "":
		return initial
	case value != initial && !slices.Contains(others, value):
		p.failed(name, "must be one of "+strings.Join(append([]string{initial}, others...), ", "))
	}
	return value
}

// flag is true for what metav1.ListOptions takes as true.
func (p *parser) flag(name string) bool {
	values, ok := p.values[name]
	return ok && len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

func (p *parser) limit(initial int) int {
	value := p.text(v1alpha1.ParamLimit)
	if value == "" {
		return initial
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > v1alpha1.MaxLimit {
		p.failed(v1alpha1.ParamLimit, fmt.Sprintf("must be a number from 1 to %d", v1alpha1.MaxLimit))
	}
	return n
}

// time reads RFC 3339, or a duration before now. It is zero without the parameter.
func (p *parser) time(name string) time.Time {
	value := p.text(name)
	if value == "" {
		return time.Time{}
	}
	if before, err := time.ParseDuration(value); err == nil {
		if before < 0 {
			p.failed(name, "a duration before now must not be negative")
		}
		return time.Now().Add(-before)
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		p.failed(name, "must be a time as in RFC 3339, or a duration before now, such as 10m")
	}
	return at
}

// windowUntilNow reads the beginning of a window that ends now.
func (p *parser) windowUntilNow() time.Duration {
	since := p.time(v1alpha1.ParamSince)
	if since.IsZero() {
		return trail.MaxWindow
	}
	window := time.Since(since)
	if window <= 0 {
		p.failed(v1alpha1.ParamSince, "must be before now")
	}
	if window > trail.MaxWindow+time.Second { // a second for what has passed since it was computed
		p.failed(v1alpha1.ParamSince, fmt.Sprintf("must be within the last %s, of which top knows", trail.MaxWindow))
	}
	return min(window, trail.MaxWindow)
}

// acceptsSSE reports whether a client prefers server-sent events.
func acceptsSSE(header http.Header) bool {
	for _, value := range header["Accept"] {
		for part := range strings.SplitSeq(value, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(mediaType), sseType) {
				return true
			}
		}
	}
	return false
}
