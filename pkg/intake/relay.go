package intake

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/ratelimitedlog"
)

// DefaultPark is how long a request waits for a leader. A handover is shorter,
// and a client that waits in vain is answered within a second.
const DefaultPark = 900 * time.Millisecond

// RelayOptions are what a Relay needs and what it may take. Begin with
// DefaultRelayOptions.
type RelayOptions struct {
	// Gate says what is accepted by this process. Required.
	Gate *Gate
	// TokenFile holds a token of the ServiceAccount that all replicas run as,
	// bound to Audience: a projected volume. It is read again when it changes.
	// Both are required. The audience must not be one of the apiserver's own.
	TokenFile string
	Audience  string
	// Reviewer is asked whose token another replica presents. Required.
	Reviewer authenticationv1client.AuthenticationV1Interface
	// Park is how long a request may wait in all until there is a leader to take
	// it, since its arrival: who the caller is is found out meanwhile.
	Park time.Duration
	// UnreachableAfter is for how long the leader may answer none of the probes that
	// Run sends it before Check fails. It has to be shorter than its Lease by more
	// than the time between two renewals.
	UnreachableAfter time.Duration
	// LeaderRenewed, if not nil, tells when the leader was last seen to renew its
	// Lease: one that does not renew it is about to be replaced, and is no reason
	// for Check to fail. It must not block.
	LeaderRenewed func() time.Time
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultRelayOptions returns the options that a daemon starts with; the required
// ones have yet to be set.
func DefaultRelayOptions() RelayOptions {
	return RelayOptions{Park: DefaultPark, UnreachableAfter: DefaultUnreachableAfter}
}

func (o *RelayOptions) validate() error {
	var errs []error
	if o.Gate == nil {
		errs = append(errs, errors.New("a gate is required"))
	}
	if o.TokenFile == "" {
		errs = append(errs, errors.New("a token file is required"))
	}
	if o.Audience == "" {
		errs = append(errs, errors.New("an audience is required"))
	}
	if o.Reviewer == nil {
		errs = append(errs, errors.New("a reviewer of tokens is required"))
	}
	if o.Park <= 0 {
		errs = append(errs, fmt.Errorf("the time to park must be greater than 0, not %s", o.Park))
	}
	if o.UnreachableAfter <= 0 {
		errs = append(errs, fmt.Errorf("the time until a leader is unreachable must be greater than 0, not %s", o.UnreachableAfter))
	}
	return errors.Join(errs...)
}

// Relay brings every request that would be recorded to the leader: here if the
// gate lets it in, or else on the replica that SetLeader has named. It is safe
// for use by many goroutines. Its own are those of the connections to the leader,
// and Close ends them.
type Relay struct {
	options    RelayOptions
	token      *tokenFile
	peers      *peers
	metrics    *relayMetrics
	changes    news // of the leader
	leaderless leaderless

	mu     sync.Mutex
	leader *connections // nil if there is none to pass on to
	closed bool
	said   string // what was logged of Check last
	// maxConnections is to one leader, for as many requests as may be in flight.
	maxConnections int
	work           sync.WaitGroup // making and closing connections

	// errorLog limits lines by reason of a failure, which concerns every request.
	errorLog *ratelimitedlog.Limiter
}

// forRequests has the relay pass on so many requests at once.
func (r *Relay) forRequests(inFlight int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxConnections = (inFlight + streams - 1) / streams
}

// leaderAddress is where a leader serves, and the fingerprint of the certificate
// that it serves with.
type leaderAddress struct{ hostPort, certificateSHA256 string }

// NewRelay returns a relay that knows of no leader. It fails if the options are
// not valid or a metric cannot be registered.
func NewRelay(o RelayOptions) (*Relay, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("intake: relay: %w", err)
	}
	if o.LeaderRenewed == nil {
		o.LeaderRenewed = time.Now
	}
	r := &Relay{options: o, token: &tokenFile{path: o.TokenFile}, errorLog: ratelimitedlog.New(ratelimitedlog.Interval)}
	r.forRequests(DefaultMaxInFlight)
	var err error
	if r.peers, err = newPeers(o.Reviewer, o.Audience, r.token); err != nil {
		return nil, fmt.Errorf("intake: relay: %w", err)
	}
	if r.metrics, err = newRelayMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("intake: relay: %w", err)
	}
	return r, nil
}

// SetLeader says where the leader serves, host:port, and the fingerprint of its
// certificate: the SHA-256 of its DER form, in lower-case hex. Both are "" if
// nobody is known to lead, or if it is this process. It is to be called at every
// change, and does not block.
func (r *Relay) SetLeader(address, certificateSHA256 string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	leader := leaderAddress{address, certificateSHA256}
	if r.closed || r.leader != nil && r.leader.leader == leader {
		return
	}
	r.dropLeader()
	if address != "" && certificateSHA256 != "" {
		r.leader = connectionsTo(leader, &r.work, r.maxConnections)
	}
	r.changes.tell()
}

// AwaitLeader returns when SetLeader has named a replica to pass on to; an error is
// that of ctx.
func (r *Relay) AwaitLeader(ctx context.Context) error {
	for {
		changed := r.changes.wait()
		if r.connections() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Relay) dropLeader() {
	if r.leader != nil {
		r.leader.retire()
		r.leader = nil
	}
}

// Close has nothing passed on any more, and closes the connections to the leader,
// but for those with requests under way, which close with the last answer. It is
// for the end of the server, when there are none.
func (r *Relay) Close() {
	r.mu.Lock()
	r.dropLeader()
	r.closed = true
	r.mu.Unlock()
	r.changes.tell()
	r.work.Wait()
}

// connections returns those to the leader, nil if there is none to pass on to.
func (r *Relay) connections() *connections {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

// around returns the handler of requests that would be recorded: next, on the
// leader. The request has been received as a whole: a slow client must not be what
// is let in by a leader and recorded long after its term.
func (r *Relay) around(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body := wholeBody(req)
		if r.serveHere(w, req, body, next) {
			return
		}
		if PassedOn(req) {
			w.Header().Set(notLeading, "true")
			refuse(w, req, unavailable("this replica does not lead"))
			return
		}
		p, err := newPassing(req, body)
		if err != nil {
			refuse(w, req, err)
			return
		}
		r.bring(w, req, p, next)
	}
}

// serveHere has a request served by this process, if the gate lets it in and it
// still leads when the occurrence is to be recorded.
func (r *Relay) serveHere(w http.ResponseWriter, req *http.Request, body []byte, next http.HandlerFunc) bool {
	term, leave, ok := r.options.Gate.enter()
	if !ok {
		return false
	}
	defer leave()
	if !admit(w, withBody(req, body), r.options.Gate.leading, term, next) {
		return false
	}
	r.leaderless.over()
	return true
}

// bring tries to have a request served, here or by the leader, until it is, or
// may have been, or its time is up.
func (r *Relay) bring(w http.ResponseWriter, req *http.Request, p *passing, next http.HandlerFunc) {
	ctx, cancel := early(req.Context())
	defer cancel()
	parking := parkingOf(req)
	patience, cancel := parking.patience(ctx)
	defer cancel()
	for {
		// Before anything is looked at, so that no change is missed.
		leaderChanged, gateChanged := r.changes.wait(), r.options.Gate.changes.wait()
		if r.serveHere(w, req, p.body, next) {
			return
		}
		answer, err := r.pass(ctx, patience, p)
		if err == nil {
			answer.write(w)
			return
		}
		if !repeatable(err) || !parking.wait(patience, leaderChanged, gateChanged, err) {
			r.refuse(w, req, ctx, p, err)
			return
		}
	}
}

// pass passes a request on to the leader. Patience is for a connection only: once
// the request may have been sent, its answer is waited for until its deadline.
func (r *Relay) pass(ctx, patience context.Context, p *passing) (*passed, error) {
	answer, err := r.send(ctx, patience, p)
	switch {
	case errors.Is(err, errNotConnected):
		r.metrics.repeatable.WithLabelValues(errNotConnected.reason).Inc()
		return nil, err
	case err != nil:
		return nil, err
	case answer.withoutEffect():
		r.metrics.repeatable.WithLabelValues(errNotLeading.reason).Inc()
		return nil, errNotLeading
	}
	r.leaderless.over()
	r.metrics.passedOn.WithLabelValues(strconv.Itoa(answer.code)).Inc()
	if answer.code == http.StatusUnauthorized {
		return nil, errNotKnown
	}
	return answer, nil
}

// send makes one attempt to have the leader answer. An error is a failure.
func (r *Relay) send(ctx, patience context.Context, p *passing) (*passed, error) {
	leader := r.connections()
	if leader == nil || !leader.use() {
		return nil, errNoLeader
	}
	defer leader.done()
	token, err := r.token.get()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoToken, err)
	}
	req, err := p.to(ctx, leader.leader.hostPort, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	answer, err := leader.roundTrip(req, patience)
	leader.note(answer, err)
	if err != nil && !errors.Is(err, errNotConnected) {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return answer, err
}

// refuse answers a request that was not brought to a leader, or of which that is
// not known: 503, after which a client sends it again.
func (r *Relay) refuse(w http.ResponseWriter, req *http.Request, ctx context.Context, p *passing, err error) {
	why := errLost
	errors.As(err, &why)
	switch ctx.Err() {
	case nil:
		r.metrics.refused.WithLabelValues(why.reason).Inc()
		r.complain(req.Context(), why, err)
		if why == errLost && p.unnamed() {
			refuse(w, req, notToRepeat(why.text))
			return
		}
		text := why.text
		for _, detail := range []error{errCertificate, errFull} {
			if errors.Is(err, detail) {
				text += ": " + detail.Error()
			}
		}
		after := retryAfterSeconds
		if why.isLeaderless() {
			after = r.leaderless.retryAfter()
		}
		refuse(w, req, unavailableFor(after, "the event was not passed on to the leader: "+text))
	case context.DeadlineExceeded:
		r.metrics.refused.WithLabelValues(reasonTimeout).Inc()
		refuse(w, req, timeoutError(ctx.Err()))
	default: // the client has gone: there is nobody to answer
	}
}

// complain logs what somebody may have to do something about.
func (r *Relay) complain(ctx context.Context, why *failure, err error) {
	if why.isLeaderless() {
		return // a handover, or the election's affair
	}
	if r.errorLog.Allow(why.reason) {
		klog.FromContext(ctx).Info("Requests are not passed on to the leader", "reason", why.reason, "err", err)
	}
}
