package delivery

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/pkg/observer"
)

// servedHistory is a history as an apiserver serves it to an observer.
type servedHistory struct {
	*history
	fault func(ctx context.Context) error // of a request
	ends  func() time.Duration            // of a watch, by a failure
}

var _ observer.Source = servedHistory{}

// List implements observer.Source. A continue token is the revision of the list, and where it goes on.
func (s servedHistory) List(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
	if err := s.fault(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head, after := s.head, ""
	if at, rest, goesOn := strings.Cut(token, " "); goesOn {
		head, _ = strconv.Atoi(at)
		after = rest
		if head < s.compacted {
			return nil, apierrors.NewResourceExpired("the continue token has expired")
		}
	}
	page := &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(head)}}
	for _, e := range s.listed(head) {
		switch {
		case e.Name <= after:
		case int64(len(page.Items)) == limit:
			page.Continue = fmt.Sprintf("%d %s", head, page.Items[limit-1].Name)
			return page, nil
		default:
			page.Items = append(page.Items, *e.DeepCopy())
		}
	}
	return page, nil
}

// listed returns the latest versions up to head, by name. Others have collapsed. The mutex must be
// held.
func (h *history) listed(head int) (latest []*corev1.Event) {
	byName := make(map[string]*corev1.Event)
	for _, e := range h.versions {
		if versionOf(e) <= head {
			h.collapsed[idOf(e)] = true
			byName[e.Name] = e
		}
	}
	for _, e := range byName {
		latest = append(latest, e)
	}
	slices.SortFunc(latest, func(a, b *corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return latest
}

// Watch implements observer.Source.
func (s servedHistory) Watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error) {
	if err := s.fault(ctx); err != nil {
		return nil, err
	}
	if ends := s.ends(); ends > 0 {
		timeout = min(timeout, ends)
	}
	w := &servedWatch{of: s.history, events: make(chan watch.Event)}
	w.after, _ = strconv.Atoi(resourceVersion)
	ctx, w.stop = context.WithTimeout(ctx, timeout)
	go w.run(ctx)
	return w, nil
}

type servedWatch struct {
	of     *history
	after  int
	events chan watch.Event
	stop   context.CancelFunc
}

func (w *servedWatch) ResultChan() <-chan watch.Event { return w.events }
func (w *servedWatch) Stop()                          { w.stop() }

func (w *servedWatch) run(ctx context.Context) {
	defer close(w.events)
	for {
		e, changed := w.next()
		if e == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case w.events <- *e:
		case <-ctx.Done():
			return
		}
		if e.Type == watch.Error {
			return
		}
	}
}

// next returns what the watch has to send, or when it has to look again.
func (w *servedWatch) next() (*watch.Event, <-chan struct{}) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.after < w.of.compacted {
		return &watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old resource version").ErrStatus}, nil
	}
	for _, e := range w.of.versions {
		if rv := versionOf(e); rv > w.after {
			w.after = rv
			return &watch.Event{Type: watch.Modified, Object: e.DeepCopy()}, nil
		}
	}
	return nil, w.of.changed
}

// recorded has the readers of a source.
type recorded struct {
	Source
	made func(Reader)
}

func (r recorded) Reader(start observer.Start) Reader {
	reader := r.Source.Reader(start)
	r.made(reader)
	return reader
}
