// Package pagetest has what the tests of the page show: a backend, and what an empty, a busy and a failing
// eventd answer.
package pagetest

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// Backend answers each resource with an object, as JSON makes it. It is safe for concurrent use.
type Backend struct {
	mu      sync.Mutex
	answers map[string]func() (any, error)
	asked   []string
	watches []*Stream
	open    atomic.Int64
	peak    int64
}

// NewBackend returns one that answers 404.
func NewBackend() *Backend { return &Backend{answers: map[string]func() (any, error){}} }

// Set changes the answer of a resource: an object of v1alpha1, or an error.
func (b *Backend) Set(resource string, answer any) {
	b.SetFunc(resource, func() (any, error) {
		if err, failed := answer.(error); failed {
			return nil, err
		}
		return answer, nil
	})
}

// SetFunc has the answer of a resource made anew for each query.
func (b *Backend) SetFunc(resource string, answer func() (any, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[resource] = answer
}

// Get implements page.Backend.
func (b *Backend) Get(ctx context.Context, resource string, query url.Values, into any) error {
	answer, err := b.answer(resource, query)
	if err != nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (b *Backend) answer(resource string, query url.Values) (any, error) {
	b.mu.Lock()
	b.asked = append(b.asked, resource+"?"+query.Encode())
	answer := b.answers[resource]
	b.mu.Unlock()
	if answer == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: resource}, "")
	}
	return answer()
}

// Asked returns the queries so far, as resource?parameters.
func (b *Backend) Asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.asked...)
}

// Watch implements page.Backend. It fails if the answer of the resource is an error.
func (b *Backend) Watch(ctx context.Context, resource string, query url.Values) (page.Stream, error) {
	if _, err := b.answer(resource, query); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{ctx: ctx, cancel: cancel, frames: make(chan metav1.WatchEvent), open: &b.open}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peak = max(b.peak, b.open.Add(1))
	b.watches = append(b.watches, s)
	return s, nil
}

// Open is how many streams are not closed.
func (b *Backend) Open() int { return int(b.open.Load()) }

// Peak is how many were open at once.
func (b *Backend) Peak() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.peak)
}

// Last returns the stream that was opened last, and how many have been.
func (b *Backend) Last() (*Stream, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.watches) == 0 {
		return nil, 0
	}
	return b.watches[len(b.watches)-1], len(b.watches)
}

// Stream is an open watch.
type Stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	frames chan metav1.WatchEvent
	end    sync.Once
	open   *atomic.Int64
	hung   atomic.Bool
}

// quiet is after what time without a frame eventd sends a bookmark.
const quiet = 4 * time.Second

// Hang has a stream send no more bookmarks, as one of an eventd that hangs.
func (s *Stream) Hang() { s.hung.Store(true) }

// Send passes a frame to who reads, and reports whether there is still somebody.
func (s *Stream) Send(kind string, object any) bool {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err) // of a type of the API
	}
	event := metav1.WatchEvent{Type: kind}
	event.Object.Raw = raw
	select {
	case s.frames <- event:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// End ends the watch as eventd does.
func (s *Stream) End() { s.cancel() }

// Next implements page.Stream.
func (s *Stream) Next() (metav1.WatchEvent, error) {
	bookmarks := time.NewTicker(quiet)
	defer bookmarks.Stop()
	for {
		select {
		case f := <-s.frames:
			return f, nil
		case <-bookmarks.C:
			if s.hung.Load() {
				continue
			}
			bookmark := metav1.WatchEvent{Type: "BOOKMARK"}
			bookmark.Object.Raw = []byte(`{}`)
			return bookmark, nil
		case <-s.ctx.Done():
			return metav1.WatchEvent{}, io.EOF
		}
	}
}

// Close implements page.Stream.
func (s *Stream) Close() error {
	s.end.Do(func() {
		s.cancel()
		s.open.Add(-1)
	})
	return nil
}
