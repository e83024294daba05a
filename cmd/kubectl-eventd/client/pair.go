package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// observeSuffix is what the name of the Lease of the processes that observe has at its end.
const observeSuffix = "-observe"

// missingFor is how long a watch goes on without one of the two, before it is opened again.
const missingFor = 5 * time.Second

// Pair asks those that take reports and those that observe (--role), each by its Lease, as if they were one: what both
// know is merged, and the other answers alone while one is missing. Where one process does both, only that is asked.
//
// A Pair is safe for concurrent use. Close ends its connections and its goroutines.
type Pair struct{ intake, observe *Client }

// NewPair returns clients with the credentials of a kubeconfig. They connect at the first request.
func NewPair(config *rest.Config, options Options) (*Pair, error) {
	intake, err := New(config, options)
	if err != nil {
		return nil, err
	}
	options.LeaseName += observeSuffix
	options.Group = v1alpha1.ObserveGroupName
	observe, err := New(config, options)
	if err != nil {
		intake.Close()
		return nil, err
	}
	return &Pair{intake, observe}, nil
}

// Close ends all connections. Requests that are open fail.
func (p *Pair) Close() {
	p.intake.Close()
	p.observe.Close()
}

// isMissing reports whether an error says that there are no such processes: no Lease, or no right to know of it, or no
// such group of the apiserver.
func isMissing(err error) bool {
	return errors.Is(err, ErrNoLease) || errors.Is(err, ErrReadingLease) && apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// ask asks both at once, and returns their answers and errors.
func ask[T any](intake, observe func() (T, error)) (answers [2]T, errs [2]error) {
	var other sync.WaitGroup
	other.Go(func() { answers[1], errs[1] = observe() })
	answers[0], errs[0] = intake()
	other.Wait()
	return answers, errs
}

// failed returns why neither answers: of two reasons that which is not that it is missing.
func failed(errs [2]error) error {
	switch {
	case errs[0] == nil || errs[1] == nil:
		return nil
	case isMissing(errs[0]) && !isMissing(errs[1]):
		return errs[1]
	default:
		return errs[0]
	}
}

// Get decodes the answer to a query, as that of a Client.
func (p *Pair) Get(ctx context.Context, resource string, query url.Values, into any) error {
	get := func(c *Client) func() (json.RawMessage, error) {
		return func() (raw json.RawMessage, err error) { return raw, c.Get(ctx, resource, query, &raw) }
	}
	if resource == "status" || resource == "why" {
		answers, errs := ask(get(p.intake), get(p.observe))
		if err := failed(errs); err != nil {
			return err
		}
		raw, err := merge(resource, answers, errs)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, into)
	}
	return p.first(resource, func(c *Client) error { return c.Get(ctx, resource, query, into) })
}

// first asks one of the two, and the other one if that is missing. Those that observe know more, but not what became of
// reports: without the intake, that there are no drops would be no answer.
func (p *Pair) first(resource string, ask func(*Client) error) error {
	if resource != "drops" {
		if err := ask(p.observe); !isMissing(err) {
			return err
		}
	}
	return ask(p.intake)
}

// merge returns one answer of two, of which one may be missing.
func merge(resource string, answers [2]json.RawMessage, errs [2]error) (json.RawMessage, error) {
	if resource == "why" {
		if i := slices.IndexFunc(errs[:], func(err error) bool { return err != nil }); i >= 0 {
			return answers[1-i], nil
		}
		return merged(answers, mergeWhy)
	}
	for i := range answers {
		if errs[i] != nil {
			answers[i] = json.RawMessage("null")
		}
	}
	return merged(answers, func(of [2]*v1alpha1.PipelineStatus) *v1alpha1.PipelineStatus { return mergeStatus(of, errs) })
}

func merged[T any](answers [2]json.RawMessage, merge func([2]*T) *T) (json.RawMessage, error) {
	var of [2]*T
	for i, raw := range answers {
		if err := json.Unmarshal(raw, &of[i]); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merge(of))
}

// mergeStatus adds the status of those that observe to that of those that take reports.
func mergeStatus(of [2]*v1alpha1.PipelineStatus, errs [2]error) *v1alpha1.PipelineStatus {
	s, observe := of[0], of[1]
	if s == nil {
		observe.Missing = fmt.Sprintf("No reports are taken: %v", errs[0])
		return observe
	}
	if observe == nil {
		if s.Flags["role"] == "intake" || !isMissing(errs[1]) {
			s.Missing = fmt.Sprintf("Nothing is observed or delivered: %v", errs[1])
		}
		return s
	}
	s.Observe = &v1alpha1.Process{
		Replica: observe.Replica, Leader: observe.Leader, Followers: observe.Followers, Configuration: observe.Configuration, Flags: observe.Flags,
	}
	for _, station := range observe.Stations {
		if !describe.OfLeader(station.Name) {
			s.Stations = append(s.Stations, station)
		}
	}
	s.Receivers, s.History, s.Rules = observe.Receivers, observe.History, append(s.Rules, observe.Rules...)
	return s
}

// mergeWhy adds the deliveries and the stored Events of an object to what became of reports about it.
func mergeWhy(of [2]*v1alpha1.Explanation) *v1alpha1.Explanation {
	e, observed := of[0], of[1]
	if e.KnownSince.Before(&observed.KnownSince) {
		e.KnownSince = observed.KnownSince
	}
	e.Forgotten, e.Truncated, e.Events = e.Forgotten || observed.Forgotten, e.Truncated || observed.Truncated, observed.Events
	e.Steps = append(e.Steps, observed.Steps...)
	slices.SortStableFunc(e.Steps, func(a, b v1alpha1.Step) int { return a.Time.Compare(b.Time.Time) })
	return e
}

// Watch opens the watch of a resource, as that of a Client.
func (p *Pair) Watch(ctx context.Context, resource string, query url.Values) (Frames, error) {
	watch := func(c *Client, query url.Values) func() (Frames, error) {
		return func() (Frames, error) { return c.Watch(ctx, resource, query) }
	}
	steps := resource == "tail" && strings.Contains(query.Get(v1alpha1.ParamInclude), "steps")
	if resource != "status" && !steps {
		var frames Frames
		err := p.first(resource, func(c *Client) (err error) {
			frames, err = c.Watch(ctx, resource, query)
			return err
		})
		return frames, err
	}
	var streams [2]Frames
	var errs [2]error
	if !steps {
		streams, errs = ask(watch(p.intake, query), watch(p.observe, query))
	} else {
		streams[1], errs[1] = p.observe.Watch(ctx, resource, query)
		if isMissing(errs[1]) { // one process may do both
			return p.intake.Watch(ctx, resource, query)
		}
		query = maps.Clone(query)
		query.Set(v1alpha1.ParamInclude, "steps")
		query.Del(v1alpha1.ParamResourceVersion) // it is that of those that observe
		streams[0], errs[0] = p.intake.Watch(ctx, resource, query)
	}
	if err := failed(errs); err != nil {
		return nil, err
	}
	return newFrames(resource, streams, errs), nil
}

// Follow runs a watch as that of a Client.
func (p *Pair) Follow(ctx context.Context, f Follow) error {
	return follow(ctx, p.Watch, p.intake.leaderPatience, f)
}

// frames are those of two streams. An object of both is merged whenever one of them changes.
type frames struct {
	resource string
	streams  [2]Frames
	errs     [2]error
	latest   [2]json.RawMessage
	news     chan news
	ended    chan struct{}
	end      func()
	again    <-chan time.Time // when a watch is to be opened again, since one is missing
}

type news struct {
	of    int
	frame metav1.WatchEvent
	err   error
}

func newFrames(resource string, streams [2]Frames, errs [2]error) *frames {
	f := &frames{resource: resource, streams: streams, errs: errs, news: make(chan news), ended: make(chan struct{})}
	f.end = sync.OnceFunc(func() { close(f.ended) })
	for i, s := range streams {
		if errs[i] != nil {
			if !isMissing(errs[i]) {
				f.again = time.After(missingFor)
			}
			continue
		}
		go func() {
			for {
				n := news{of: i}
				n.frame, n.err = s.Next()
				select {
				case f.news <- n:
				case <-f.ended:
					return
				}
				if n.err != nil {
					return
				}
			}
		}()
	}
	return f
}

// Next waits for the next frame.
func (f *frames) Next() (metav1.WatchEvent, error) {
	for {
		select {
		case <-f.again:
			return metav1.WatchEvent{}, io.EOF
		case <-f.ended:
			return metav1.WatchEvent{}, io.EOF
		case n := <-f.news:
			if n.err != nil || f.resource == "tail" || n.frame.Type == string(watch.Bookmark) {
				return n.frame, n.err
			}
			f.latest[n.of] = n.frame.Object.Raw
			if i := slices.IndexFunc(f.latest[:], func(raw json.RawMessage) bool { return raw == nil }); i >= 0 && f.errs[i] == nil {
				continue // until both have answered
			}
			raw, err := merge(f.resource, f.latest, f.errs)
			n.frame.Object = runtime.RawExtension{Raw: raw}
			return n.frame, err
		}
	}
}

// Close ends the watch.
func (f *frames) Close() error {
	f.end()
	for i, s := range f.streams {
		if f.errs[i] == nil {
			_ = s.Close()
		}
	}
	return nil
}
