package ha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

const (
	// By probeEvery and probeFailures a replica that is not ready gets no more requests
	// some time later, as in a cluster.
	probeEvery    = 200 * time.Millisecond
	probeFailures = 3
	probeTimeout  = time.Second
)

// service stands for a Service: it is the transport of clients, distributes their
// requests over the replicas that are ready, and counts the answers.
type service struct {
	mu       sync.Mutex
	backends []*backend
	next     int
	answers  answers
}

// backend is one life of a replica.
type backend struct {
	name      string
	url       *url.URL
	transport http.RoundTripper
	failures  int // probes that failed since the last one that did not
}

func (b *backend) ready() bool { return b.failures < probeFailures }

// answer is that to one request.
type answer struct {
	method     string
	code       int  // 0 if there was none
	retryAfter bool // has the header Retry-After
}

func (a answer) String() string {
	switch {
	case a.code == 0:
		return a.method + " without an answer"
	case a.retryAfter:
		return fmt.Sprintf("%s %d with Retry-After", a.method, a.code)
	default:
		return fmt.Sprint(a.method, " ", a.code)
	}
}

// isFinal reports whether client-go's rest client and recorders do not retry after it.
// They retry 429 and 5xx with a Retry-After, accept 409 as written before, and post
// what does not exist to be patched.
func (a answer) isFinal() bool {
	switch {
	case a.code == 0, a.code < 300, a.code == http.StatusConflict:
		return false
	case a.code == http.StatusNotFound:
		return a.method != http.MethodPatch
	default:
		return !a.retryAfter
	}
}

// newService returns a service without replicas, which ends with the test.
func newService(t *testing.T) *service {
	s := &service{answers: answers{}}
	end := await.Every(probeEvery, s.probe)
	t.Cleanup(func() {
		end()
		for _, b := range slices.Clone(s.backends) {
			s.remove(b.name)
		}
	})
	return s
}

// newBackend returns a backend that is not ready.
func newBackend(name string, config *rest.Config) (*backend, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tls})
	return &backend{name: name, url: address, transport: transport, failures: probeFailures}, nil
}

// add adds a replica, or the next life of one. As in a cluster it gets no requests
// until a probe finds it ready.
func (s *service) add(b *backend) {
	s.remove(b.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = append(s.backends, b)
}

// waitReady waits until a replica gets requests.
func (s *service) waitReady(ctx context.Context, name string) error {
	return await.Success(ctx, await.Timeout, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.ContainsFunc(s.backends, func(b *backend) bool { return b.name == name && b.ready() }) {
			return errors.New("not ready")
		}
		return nil
	})
}

// remove removes a replica that has ended.
func (s *service) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = slices.DeleteFunc(s.backends, func(b *backend) bool {
		if b.name == name {
			utilnet.CloseIdleConnectionsFor(b.transport)
		}
		return b.name == name
	})
}

// RoundTrip sends a request to the next replica.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := s.pick()
	if err != nil {
		s.count(r.Method, nil)
		return nil, err
	}
	sent := r.Clone(r.Context())
	sent.URL.Scheme, sent.URL.Host, sent.Host = b.url.Scheme, b.url.Host, ""
	response, err := b.transport.RoundTrip(sent)
	s.count(r.Method, response)
	return response, err
}

func (s *service) pick() (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.backends {
		s.next++
		if b := s.backends[s.next%len(s.backends)]; b.ready() {
			return b, nil
		}
	}
	return nil, errors.New("no replica is ready")
}

func (s *service) count(method string, response *http.Response) {
	a := answer{method: method}
	if response != nil {
		a.code, a.retryAfter = response.StatusCode, response.Header.Get("Retry-After") != ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[a]++
}

// answered returns a copy of the answers.
func (s *service) answered() answers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.answers)
}

// answers counts answers.
type answers map[answer]int

// sum adds up those that are of a kind.
func (a answers) sum(is func(answer) bool) (sum int) {
	for answer, n := range a {
		if is(answer) {
			sum += n
		}
	}
	return sum
}

func (a answers) unanswered() int { return a.sum(func(a answer) bool { return a.code == 0 }) }

// final lists the errors after which clients do not retry.
func (a answers) final() string {
	var all []string
	for answer, n := range a {
		if answer.isFinal() {
			all = append(all, fmt.Sprintf("%d × %s", n, answer))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// probe probes the readiness of all replicas.
func (s *service) probe(ctx context.Context) {
	s.mu.Lock()
	backends := slices.Clone(s.backends)
	s.mu.Unlock()
	var probes sync.WaitGroup
	for _, b := range backends {
		probes.Go(func() {
			ready := isReady(ctx, b)
			s.mu.Lock()
			defer s.mu.Unlock()
			if b.failures++; ready {
				b.failures = 0
			}
		})
	}
	probes.Wait()
}

func isReady(ctx context.Context, b *backend) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url.String()+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := b.transport.RoundTrip(r)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection is used again
	return response.StatusCode == http.StatusOK
}

// through is the configuration of a client of the service.
func (s *service) through(credentials *rest.Config) *rest.Config {
	return &rest.Config{Host: "https://eventd.kube-system.svc", Transport: s, BearerToken: credentials.BearerToken, QPS: -1}
}

func TestErrorsThatClientsDoNotTryAgainAfterAreSeen(t *testing.T) {
	for final, all := range map[bool][]answer{
		false: {
			{"POST", 0, false}, {"POST", 201, false}, {"PATCH", 202, false}, {"POST", 409, false},
			{"POST", 503, true}, {"PATCH", 429, true}, {"PATCH", 404, false},
		},
		true: {
			{"POST", 404, false}, {"POST", 503, false}, {"POST", 429, false}, {"POST", 504, false},
			{"POST", 401, false}, {"POST", 422, false},
		},
	} {
		for _, a := range all {
			if a.isFinal() != final {
				t.Errorf("%s: final is %t", a, a.isFinal())
			}
		}
	}
	seen := answers{{"POST", 201, false}: 5, {"POST", 503, false}: 2, {"POST", 503, true}: 3, {"POST", 0, false}: 4}
	if got := seen.final(); got != "2 × POST 503" {
		t.Errorf("final are %q", got)
	}
	if seen.unanswered() != 4 {
		t.Errorf("%d unanswered", seen.unanswered())
	}
}
