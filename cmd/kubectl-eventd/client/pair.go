package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// observeSuffix is what the name of the Lease of the processes that observe has at its end.
const observeSuffix = "-observe"

// patience is how long one of the two is waited for, once the other one has answered.
const patience = 2 * time.Second

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

// isMissing reports whether an error is what a caller gets if there are no such processes: no Lease, or no right to know
// of it, or no such resource.
func isMissing(err error) bool {
	return errors.Is(err, ErrNoLease) || errors.Is(err, ErrReadingLease) && apierrors.IsForbidden(err) || notServed(err)
}

// notServed reports whether an error is that eventd, or the apiserver, does not serve a resource.
func notServed(err error) bool { return apierrors.IsNotFound(err) && !errors.Is(err, ErrConnecting) }

// isAway reports whether an error is no answer of eventd, so that the other one is asked.
func isAway(err error) bool { return err != nil && (isMissing(err) || passes(err)) }

// missing says which of the two does not answer, and why. role is that of the process that does: one that does both needs
// no other.
func missing(errs [2]error, role string) string {
	switch {
	case errs[0] != nil:
		return fmt.Sprintf("What is reported is not known: %v", errs[0])
	case errs[1] != nil && (role == "intake" || !isMissing(errs[1])):
		return fmt.Sprintf("What is observed and delivered is not known: %v", errs[1])
	}
	return ""
}

// ask asks both at once, and returns their answers and errors.
func ask[T any](p *Pair, one func(*Client) (T, error)) (answers [2]T, errs [2]error) {
	var other sync.WaitGroup
	other.Go(func() { answers[1], errs[1] = one(p.observe) })
	answers[0], errs[0] = one(p.intake)
	other.Wait()
	return answers, errs
}

// failed returns why neither answers a query of a resource: of two reasons the one that says more, or both.
func failed(resource string, errs [2]error) error {
	intake, observe := errs[0], errs[1]
	ofObserve := describe.Flag(resource) == "--history-bytes" && notServed(intake)
	switch {
	case intake == nil || observe == nil:
		return nil
	case ofObserve && errors.Is(observe, ErrNoLease):
		return fmt.Errorf("%w: %w", describe.ErrNothingObserves, observe)
	case ofObserve && !notServed(observe), isMissing(intake) && !isMissing(observe):
		return observe
	case passes(intake) && passes(observe) && !isMissing(observe) && intake.Error() != observe.Error():
		return fmt.Errorf("%w; %w", intake, observe)
	default:
		return intake
	}
}

// Get decodes the answer to a query, as that of a Client.
func (p *Pair) Get(ctx context.Context, resource string, query url.Values, into any) error {
	switch resource {
	case "drops": // those that observe do not know what became of reports: that there are none would be no answer
		return p.intake.Get(ctx, resource, query, into)
	case "timeline":
		err := p.observe.Get(ctx, resource, query, into)
		if isAway(err) { // one process may do both
			err = failed(resource, [2]error{p.intake.Get(ctx, resource, query, into), err})
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers, errs := ask(p, func(c *Client) (raw json.RawMessage, err error) {
		if err = c.Get(ctx, resource, query, &raw); err == nil {
			time.AfterFunc(patience, func() { cancel(errLate) })
		}
		return raw, err
	})
	if err := failed(resource, errs); err != nil {
		return err
	}
	raw, err := merge(resource, query, answers, errs)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// merge returns one answer of two, of which one may be missing.
func merge(resource string, query url.Values, answers [2]json.RawMessage, errs [2]error) (json.RawMessage, error) {
	switch resource {
	case "status":
		return merged(answers, errs, mergeStatus)
	case "why":
		return merged(answers, errs, mergeWhy)
	default:
		limit, _ := strconv.Atoi(query.Get(v1alpha1.ParamLimit))
		return merged(answers, errs, func(of [2]*v1alpha1.Top, errs [2]error) *v1alpha1.Top { return mergeTop(of, errs, limit) })
	}
}

// merged decodes the answers, of which one is nil if it is missing, and encodes what is made of them.
func merged[T any](answers [2]json.RawMessage, errs [2]error, merge func([2]*T, [2]error) *T) (json.RawMessage, error) {
	var of [2]*T
	for i, raw := range answers {
		if errs[i] != nil {
			continue
		}
		if err := json.Unmarshal(raw, &of[i]); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merge(of, errs))
}

// mergeTop returns the larger figures of both, of at most limit keys unless it is 0. Only those that take reports know
// what was filtered, dropped or deferred, and only those that observe what others write to the apiserver.
func mergeTop(of [2]*v1alpha1.Top, errs [2]error, limit int) *v1alpha1.Top {
	top, other := of[1], of[0]
	if top == nil {
		top, other = other, nil
	}
	if top.Missing = missing(errs, top.Role); other == nil {
		return top
	}
	top.Occurrences = max(top.Occurrences, other.Occurrences)
	for _, item := range other.Items {
		i := slices.IndexFunc(top.Items, func(had v1alpha1.TopItem) bool {
			return ptr.Equal(had.Object, item.Object) && had.Reason+had.Namespace+had.Reporter == item.Reason+item.Namespace+item.Reporter
		})
		if i < 0 {
			top.Items = append(top.Items, item)
			continue
		}
		same := &top.Items[i]
		if item.Occurrences > same.Occurrences {
			same.Occurrences, same.Error = item.Occurrences, item.Error
		}
		same.Writes, same.Saved = max(same.Writes, item.Writes), max(same.Saved, item.Saved)
	}
	slices.SortStableFunc(top.Items, func(a, b v1alpha1.TopItem) int { return cmp.Compare(b.Occurrences, a.Occurrences) })
	top.Items = top.Items[:min(len(top.Items), cmp.Or(limit, len(top.Items)))]
	return top
}

// mergeStatus adds the status of those that observe to that of those that take reports. Of the way in, those that observe
// know nothing.
func mergeStatus(of [2]*v1alpha1.PipelineStatus, errs [2]error) *v1alpha1.PipelineStatus {
	s, observe := of[0], of[1]
	if observe == nil {
		s.Missing = missing(errs, s.Flags["role"])
		return s
	}
	observe.Stations = slices.DeleteFunc(observe.Stations, func(s v1alpha1.Station) bool { return describe.OfLeader(s.Name) })
	if s == nil {
		observe.Missing, observe.Apiserver.Figures = missing(errs, ""), nil
		return observe
	}
	s.Observe = &v1alpha1.Process{
		Replica: observe.Replica, Leader: observe.Leader, Followers: observe.Followers, Configuration: observe.Configuration, Flags: observe.Flags,
	}
	s.Stations = append(s.Stations, observe.Stations...)
	s.Receivers, s.History, s.Rules = observe.Receivers, observe.History, append(s.Rules, observe.Rules...)
	return s
}

// mergeWhy adds the deliveries and the stored Events of an object to what became of reports about it, causes first.
func mergeWhy(of [2]*v1alpha1.Explanation, errs [2]error) *v1alpha1.Explanation {
	e, observed := of[0], of[1]
	if e == nil {
		e, observed = observed, nil
	}
	if e.Missing = missing(errs, e.Role); observed != nil {
		e.Observe = &v1alpha1.Memory{Leader: observed.Leader, KnownSince: observed.KnownSince}
		e.Forgotten, e.Truncated, e.Events = e.Forgotten || observed.Forgotten, e.Truncated || observed.Truncated, observed.Events
		e.Steps = append(e.Steps, observed.Steps...)
	}
	sortByCause(e.Steps)
	return e
}

// maxSkew is how long before the end of its write an Event may seem to be delivered: the observer learns of it at the same
// time, and has another clock.
const maxSkew = 5 * time.Second

// sortByCause sorts steps by when they began. By when they were done last, a step would be before its cause that goes on:
// what stored an Event before the reports that are counted on it since.
func sortByCause(steps []v1alpha1.Step) {
	began := func(s v1alpha1.Step) time.Time { return cmp.Or(s.First, &s.Time).Time }
	written := map[string]time.Time{} // when each Event was first, by namespace and name
	for _, s := range slices.Backward(steps) {
		if s.Action == v1alpha1.ActionSettled {
			written[s.Namespace+"/"+s.Event] = began(s)
		}
	}
	at := func(s v1alpha1.Step) time.Time {
		t, first := began(s), written[s.Namespace+"/"+s.Event]
		ofDelivery := s.Action == v1alpha1.ActionDelivered || s.Action == v1alpha1.ActionUnrouted
		if ofDelivery && first.After(t) && first.Sub(t) <= maxSkew {
			return first.Add(1)
		}
		return t
	}
	slices.SortStableFunc(steps, func(a, b v1alpha1.Step) int { return at(a).Compare(at(b)) })
}

// Watch opens the watch of a resource, as that of a Client.
func (p *Pair) Watch(ctx context.Context, resource string, query url.Values) (Frames, error) {
	watch := func(c *Client) (Frames, error) { return c.Watch(ctx, resource, query) }
	var streams [2]Frames
	var errs [2]error
	var role string // of the intake, if that is known before it answers
	switch resource {
	case "drops":
		return watch(p.intake)
	case "status", "top":
		streams, errs = ask(p, watch)
	default:
		steps := resource == "tail" && strings.Contains(query.Get(v1alpha1.ParamInclude), "steps")
		if streams[1], errs[1] = watch(p.observe); isAway(errs[1]) {
			streams[0], errs[0] = watch(p.intake) // one process may do both
		} else if !steps {
			return streams[1], errs[1]
		}
		if !steps || isAway(errs[1]) && !notServed(errs[0]) {
			break
		}
		query, role = maps.Clone(query), "intake"
		query.Set(v1alpha1.ParamInclude, "steps")
		query.Del(v1alpha1.ParamResourceVersion) // it is that of those that observe
		streams[0], errs[0] = watch(p.intake)
	}
	if err := failed(resource, errs); err != nil {
		return nil, err
	}
	return newFrames(resource, query, streams, errs, missing(errs, role)), nil
}

// Follow runs a watch until ctx ends, which is no error, or it is refused. Until it was open once, any failure
// ends it, but that it waits some seconds for a leader.
func (p *Pair) Follow(ctx context.Context, f Follow) error {
	return follow(ctx, p.Watch, p.intake.leaderPatience, f)
}

// frames are those of two streams. An object of both is merged whenever one of them changes.
type frames struct {
	resource string
	query    url.Values
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

// newFrames reads two streams. A tail has no object that could say what is missing, so its first frame does.
func newFrames(resource string, query url.Values, streams [2]Frames, errs [2]error, missing string) *frames {
	f := &frames{resource: resource, query: query, streams: streams, errs: errs, news: make(chan news, 1), ended: make(chan struct{})}
	f.end = sync.OnceFunc(func() { close(f.ended) })
	if resource == "tail" && missing != "" {
		raw, err := json.Marshal(v1alpha1.TailItem{Missing: missing})
		f.news <- news{frame: metav1.WatchEvent{Type: string(watch.Bookmark), Object: runtime.RawExtension{Raw: raw}}, err: err}
	}
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
			raw, err := merge(f.resource, f.query, f.latest, f.errs)
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
