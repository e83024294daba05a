package pipeline

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/occurrence"
)

// subscription is the watch.Interface that client-go's broadcaster returns:
// something to stop. What is watched goes to the handler; the channel delivers
// nothing and is closed when there will be no more.
type subscription struct {
	stop func()
	done chan watch.Event
}

var _ watch.Interface = &subscription{}

// Stop ends the subscription, and does not wait.
func (s *subscription) Stop() { s.stop() }

// ResultChan is closed when the subscription has ended.
func (s *subscription) ResultChan() <-chan watch.Event { return s.done }

// watch hands every occurrence to the handler, as an Event of the handler's own.
func (s *stations) watch(handle func(*corev1.Event)) (*subscription, error) {
	metrics := s.registrations("")
	out, err := s.startWatcher(handle, metrics)
	if err != nil {
		s.nameplate.remove(metrics)
		return nil, err
	}
	s.complain(metrics.publish())
	return out, nil
}

func (s *stations) startWatcher(handle func(*corev1.Event), metrics *registrations) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers++
	subscriber, err := s.broadcaster.Subscribe(broadcaster.SubscribeOptions{
		Name:       "watcher-" + strconv.Itoa(s.watchers),
		Capacity:   s.options.WatcherCapacity,
		WhenFull:   s.options.WhenFull,
		Registerer: metrics,
	})
	if err != nil {
		return nil, err
	}
	out := &subscription{stop: subscriber.Stop, done: make(chan watch.Event)}
	s.watching[out] = struct{}{}
	go func() {
		subscriber.Handle(klog.FromContext(s.ctx), func(o *occurrence.Occurrence) { handle(eventOf(o)) })
		s.mu.Lock()
		delete(s.watching, out)
		shut := s.shut
		s.mu.Unlock()
		close(out.done)
		if !shut {
			s.nameplate.remove(metrics)
			metrics.takeBack()
		}
	}()
	return out, nil
}

// eventOf is the Event of an occurrence, under the name that it will be stored
// under unless that name is taken. It is the caller's own: the one of an
// occurrence is shared.
func eventOf(o *occurrence.Occurrence) *corev1.Event {
	if o.Origin != nil {
		event := o.Origin.Event(o.Recorded)
		event.Name = o.Origin.Name(event)
		return event
	}
	event := o.Event.DeepCopy()
	event.Name = identity.Name(event.InvolvedObject.Name, o.Series(), 0)
	return event
}
