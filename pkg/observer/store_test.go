package observer

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// record is a change in the history of the store.
type record struct {
	rev   int64
	kind  watch.EventType
	event *corev1.Event
}

// store is an apiserver without a watch cache, over an etcd.
type store struct {
	mu        sync.Mutex
	rev       int64
	compacted int64
	history   []record
	current   map[string]*corev1.Event // the state at rev
	changed   chan struct{}            // closed and replaced
	open      map[*connection]bool

	// fault returns what goes wrong with the next request, if anything: an error, or errHang.
	fault func() error
	// breakAfter is after how many events a watch ends.
	breakAfter func() int
	// expires: a watch that ends does so with 410, if what follows was compacted before it was sent.
	expires func() bool
	// maxPage is the largest page that is possible.
	maxPage int
	// tokens: those that expire are answered with a new one.
	tokens bool
	// expired counts tokens that were replaced, and lost lists that had to begin anew.
	expired, lost int
}

var errHang = fmt.Errorf("no answer")

func newStore() *store {
	return &store{
		rev: 1, current: make(map[string]*corev1.Event), changed: make(chan struct{}), open: make(map[*connection]bool), tokens: true, maxPage: 1 << 30, expires: func() bool { return false },
		fault: func() error { return nil }, breakAfter: func() int { return 1 << 30 },
	}
}

func (s *store) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// put stores a version of the Event with a name.
func (s *store) put(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, event := watch.Added, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.rev++
	if old := s.current[name]; old != nil {
		kind, event = watch.Modified, old.DeepCopy()
	} else {
		event.UID = types.UID(fmt.Sprintf("%s-%d-%d", name, s.rev, rand.Int64()))
	}
	event.Count++
	event.Message = strings.Repeat("m", 100)
	event.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "test"}}
	event.ResourceVersion = strconv.FormatInt(s.rev, 10)
	s.history = append(s.history, record{s.rev, kind, event})
	s.current[name] = event
	s.changedLocked()
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current[name]
	if old == nil {
		return
	}
	s.rev++
	event := old.DeepCopy()
	event.ResourceVersion = strconv.FormatInt(s.rev, 10)
	s.history = append(s.history, record{s.rev, watch.Deleted, event})
	delete(s.current, name)
	s.changedLocked()
}

// other changes something that is no Event.
func (s *store) other(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rev += n
}

func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.rev
}

// restore goes back by a number of revisions, and ends all watches.
func (s *store) restore(by int64) {
	s.restoreUnnoticed(by)
	s.breakWatches()
}

// restoreUnnoticed leaves the watches open: an apiserver that runs on resumes them by itself.
func (s *store) restoreUnnoticed(by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rev = max(s.rev-by, 1)
	s.compacted = min(s.compacted, s.rev)
	s.history = slices.DeleteFunc(s.history, func(r record) bool { return r.rev > s.rev })
	s.current = s.stateLocked(s.rev)
}

// rewind restores, and goes on in the new history with the watches that are open.
func (s *store) rewind(by int64) {
	s.restoreUnnoticed(by)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.after = min(c.after, s.rev)
	}
}

// breakWatches ends all watches.
func (s *store) breakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.cancel()
	}
}

func (s *store) state() map[string]*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked(s.rev)
}

func (s *store) stateLocked(rev int64) map[string]*corev1.Event {
	state := make(map[string]*corev1.Event)
	for _, r := range s.history {
		switch {
		case r.rev > rev:
			return state
		case r.kind == watch.Deleted:
			delete(state, r.event.Name)
		default:
			state[r.event.Name] = r.event
		}
	}
	return state
}

func (s *store) begin(ctx context.Context) error {
	err := s.fault()
	if err == errHang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *store) List(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rev, after := s.rev, ""
	if token != "" {
		at, rest, _ := strings.Cut(token, " ")
		if after = rest; at != "now" {
			rev, _ = strconv.ParseInt(at, 10, 64)
		}
		if rev < s.compacted || rev > s.rev {
			expired := apierrors.NewResourceExpired("the continue token has expired")
			if s.tokens {
				s.expired++
				expired.ErrStatus.ListMeta.Continue = "now " + after
			} else {
				s.lost++
			}
			return nil, expired
		}
	}
	page := &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)}}
	state := s.stateLocked(rev)
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if name <= after {
			continue
		}
		if int64(len(page.Items)) == limit {
			page.Continue = fmt.Sprintf("%d %s", rev, page.Items[limit-1].Name)
			break
		}
		page.Items = append(page.Items, *state[name].DeepCopy())
	}
	if len(page.Items) > s.maxPage {
		return nil, fmt.Errorf("reading the body: %w", ErrPageTooLarge)
	}
	return page, nil
}

// connection is an open watch.
type connection struct {
	s      *store
	ctx    context.Context
	cancel context.CancelFunc
	events chan watch.Event
	// after is what was read. expired: it was compacted before the watch was opened.
	after   int64
	expired bool
}

func (c *connection) ResultChan() <-chan watch.Event { return c.events }
func (c *connection) Stop()                          { c.cancel() }

func (s *store) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	c := &connection{s: s, events: make(chan watch.Event)}
	c.ctx, c.cancel = context.WithTimeout(ctx, timeout)
	c.after, _ = strconv.ParseInt(rv, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = true
	c.expired = c.after < s.compacted
	go c.serve(s.breakAfter())
	return c, nil
}

func (c *connection) serve(n int) {
	defer close(c.events)
	defer func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		delete(c.s.open, c)
	}()
	for ; n > 0 && !c.expired; n-- {
		e, rev, ok := c.next()
		if !ok || !c.send(e) {
			return
		}
		c.s.mu.Lock()
		c.after = rev
		c.s.mu.Unlock()
	}
	c.s.mu.Lock()
	behind := c.after < c.s.compacted
	c.s.mu.Unlock()
	if c.expired || behind && c.s.expires() {
		expired := apierrors.NewResourceExpired("too old resource version")
		c.send(watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
	}
}

func (c *connection) send(e watch.Event) bool {
	select {
	case c.events <- e:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// next waits for the next change after what was read.
func (c *connection) next() (watch.Event, int64, bool) {
	for {
		c.s.mu.Lock()
		changed := c.s.changed
		i := sort.Search(len(c.s.history), func(i int) bool { return c.s.history[i].rev > c.after })
		if i < len(c.s.history) {
			r := c.s.history[i]
			c.s.mu.Unlock()
			return watch.Event{Type: r.kind, Object: r.event.DeepCopy()}, r.rev, true
		}
		c.s.mu.Unlock()
		select {
		case <-changed:
		case <-c.ctx.Done():
			return watch.Event{}, 0, false
		}
	}
}

// unread is the number of changes that the apiserver keeps for watches that do not read them.
func (s *store) unread() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		for _, r := range s.history {
			if r.rev > c.after && c.after <= s.rev {
				n++
			}
		}
	}
	return n
}

func status(code int, seconds int) error {
	return apierrors.NewGenericServerResponse(code, "get", corev1.Resource("events"), "", http.StatusText(code), seconds, true)
}

func wantNone(t *testing.T, what string, n int) {
	t.Helper()
	if n != 0 {
		t.Errorf("%s: %d, want none", what, n)
	}
}
