package servingca

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/internal/sleep"
)

// Options of a Manager.
type Options struct {
	// Config leads to the apiserver.
	Config *rest.Config
	// Namespace and Name are those of the Secret and of the ConfigMap.
	Namespace, Name string
	// DNSNames are those of the serving certificates.
	DNSNames []string
	Times    Times
	// Registerer is optional.
	Registerer prometheus.Registerer
	// Now is the clock of this machine; nil is time.Now.
	Now func() time.Time
}

// Manager issues serving certificates, and keeps the CA while this process leads. It is safe for
// concurrent use, and does nothing before Run.
type Manager struct {
	options Options
	store   *store
	clock   *clock
	metrics *metrics
	lines   *ratelimitedlog.Limiter

	leaf atomic.Pointer[leaf]
	read struct {
		once sync.Once
		done chan struct{}
	}
	wake chan struct{} // has an element when there may be something to do

	mu   sync.Mutex
	term context.Context // ends when this process no longer leads; nil before its first term

	// Of Run only.

	last view
	// agreed is the ConfigMap as it last was what the Secret says.
	agreed string
}

// New returns a Manager. It makes no request.
func New(o Options) (*Manager, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Manager{
		options: o, clock: &clock{own: o.Now}, lines: ratelimitedlog.New(ratelimitedlog.Interval),
		wake: make(chan struct{}, 1),
	}
	m.read.done = make(chan struct{})
	config := rest.CopyConfig(o.Config)
	config.Wrap(m.clock.wrap)
	config.QPS = -1 // minPause limits the rate
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("serving CA: %w", err)
	}
	m.store = &store{client: client, namespace: o.Namespace, name: o.Name, timeout: o.Times.CallTimeout}
	if m.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("serving CA: %w", err)
	}
	return m, nil
}

// Read is closed when both objects have been read. If there is a CA, there is a certificate then.
func (m *Manager) Read() <-chan struct{} { return m.read.done }

// maxServerName is the length of the longest DNS name. To compare a longer one, as anybody can send, takes
// milliseconds.
const maxServerName = 253

// GetCertificate is one of tls.Config. It returns nil for a client that names no server, or another
// one, and before there is a certificate.
func (m *Manager) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	l := m.leaf.Load()
	if l == nil || hello.ServerName == "" || len(hello.ServerName) > maxServerName || l.certificate.Leaf.VerifyHostname(hello.ServerName) != nil {
		return nil, nil
	}
	return l.certificate, nil
}

// Lead has Run keep the CA until ctx ends, which must be when this process no longer leads.
func (m *Manager) Lead(ctx context.Context) error {
	m.mu.Lock()
	m.term = ctx
	m.mu.Unlock()
	m.notify()
	<-ctx.Done()
	return nil
}

// leading returns a context that ends with ctx and with the term, or nil if this process does not
// lead.
func (m *Manager) leading(ctx context.Context) (context.Context, context.CancelFunc) {
	m.mu.Lock()
	term := m.term
	m.mu.Unlock()
	if term == nil || term.Err() != nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(term, cancel)
	return ctx, func() { stop(); cancel() }
}

func (m *Manager) notify() { notify.Wake(m.wake) }

// minPause is between two reads: somebody may write the objects all the time.
const minPause = 100 * time.Millisecond

// Run issues certificates, and keeps the CA during terms, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { m.keepWatching(ctx, m.store.watchSecret) })
	watching.Go(func() { m.keepWatching(ctx, m.store.watchConfigMap) })
	for ctx.Err() == nil {
		next := m.step(ctx)
		_ = sleep.For(ctx, minPause)
		_ = sleep.Until(ctx, next.Sub(m.clock.now()), m.wake)
	}
}

func (m *Manager) keepWatching(ctx context.Context, watch func(context.Context, func()) error) {
	for ctx.Err() == nil {
		err := watch(ctx, m.notify)
		if ctx.Err() == nil && err != nil {
			m.fail(ctx, failedRead, fmt.Errorf("watching: %w", err))
		}
		_ = sleep.For(ctx, m.options.Times.RetryAfter)
	}
}

// step reads both objects, does what is due, and returns when something is due again.
func (m *Manager) step(ctx context.Context) time.Time {
	times := m.options.Times
	again := m.clock.now().Add(times.Resync)
	planned, err := m.maintain(ctx)
	if err != nil {
		again = m.clock.now().Add(times.RetryAfter)
	} else if !planned.IsZero() {
		again = earlier(again, planned)
	}
	m.renew(ctx)
	if err == nil {
		m.read.once.Do(func() { close(m.read.done) })
	}
	if l := m.leaf.Load(); l != nil {
		again = earlier(again, later(l.renewAt, m.clock.now().Add(times.RetryAfter)))
	}
	return again
}

// maxActions bounds the actions of one step: a whole rotation takes fewer.
const maxActions = 16

// maintain reads both objects, and writes them while this process leads. It returns when there is
// something to write again; zero is unknown.
func (m *Manager) maintain(ctx context.Context) (again time.Time, err error) {
	for range maxActions {
		c, err := m.load(ctx)
		if err != nil {
			return time.Time{}, m.fail(ctx, failedRead, err)
		}
		term, end := m.leading(ctx)
		if term == nil {
			end()
			m.agree()
			return time.Time{}, nil
		}
		m.last.rejectUnknown()
		do, at := plan(m.clock.now(), m.options.Times, &m.last)
		if do == nothing {
			end()
			m.agree()
			return at, nil
		}
		err = m.perform(term, do, c)
		end()
		if err != nil {
			return time.Time{}, err
		}
	}
	return m.clock.now().Add(m.options.Times.RetryAfter), nil
}

func (m *Manager) load(ctx context.Context) (content, error) {
	c, err := m.store.read(ctx)
	if err != nil {
		return content{}, err
	}
	published, _ := parseBundle(c.bundle) // the leader compares the text
	m.last = view{state: decode(c.secret), text: c.bundle, published: published, known: m.last.known}
	if signs := m.last.signer(m.clock.now()); signs != nil {
		setExpiry(m.metrics.caExpires, signs.certificate)
	}
	return c, nil
}

// agree remembers the CAs of a good Secret that are published.
func (m *Manager) agree() {
	v := &m.last
	if v.problem == nil && v.current != nil && slices.ContainsFunc(v.published, v.current.certificate.Equal) {
		v.known, m.agreed = v.bundle(), string(v.text)
	}
}

// perform does one action. It returns nil if both objects are to be read again.
func (m *Manager) perform(ctx context.Context, do action, c content) error {
	v, now := &m.last, m.clock.now()
	m.report(ctx, do)
	if do == publish {
		return m.wrote(ctx, do, m.store.writeBundle(ctx, c, encodeBundle(v.bundle())))
	}
	var made *authority
	var err error
	if do == createFirst || do == createNext {
		if made, err = newAuthority(now, m.options.Times); err != nil {
			return m.fail(ctx, failedIssue, err)
		}
	}
	s := v.after(do, now, made)
	data, err := s.encode()
	if err != nil {
		return m.fail(ctx, failedIssue, err)
	}
	if err = m.store.writeSecret(ctx, c, data); err == nil {
		v.known = s.bundle()
		if do == switchOver {
			m.metrics.rotations.Inc()
		}
	}
	return m.wrote(ctx, do, err)
}
