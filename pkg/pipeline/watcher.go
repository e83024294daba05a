package pipeline

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/occurrence"
)

// subscription is the watch.Interface that client-go's broadcaster returns, to stop a sink
// or watcher. Its channel delivers nothing, and is closed at the end.
type subscription struct {
	stop func()
	done chan watch.Event
}

var _ watch.Interface = &subscription{}

// Stop ends the subscription. It does not wait.
func (s *subscription) Stop() { s.stop() }

// ResultChan is closed when the subscription has ended.
func (s *subscription) ResultChan() <-chan watch.Event { return s.done }

// watch calls the handler with each Event, which all watchers share.
func (s *stages) watch(handle func(*occurrence.Shared)) (*subscription, error) {
	metrics := s.registrations("")
	out, err := s.startWatcher(handle, metrics)
	if err != nil {
		s.nameHolder.remove(metrics)
		return nil, err
	}
	s.logRegistration(metrics.publish())
	return out, nil
}

func (s *stages) startWatcher(handle func(*occurrence.Shared), metrics *registrations) (*subscription, error) {
	if s.options.WatcherCapacity <= 0 {
		return nil, fmt.Errorf("pipeline options: WatcherCapacity must be greater than 0, not %d", s.options.WatcherCapacity)
	}
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
		subscriber.Handle(klog.FromContext(s.ctx), func(o *occurrence.Occurrence) { handle(o.Origin.Shared(o.Recorded)) })
		s.mu.Lock()
		delete(s.watching, out)
		shut := s.shut
		s.mu.Unlock()
		close(out.done)
		if !shut {
			s.nameHolder.remove(metrics)
			metrics.unregisterAll()
		}
	}()
	return out, nil
}
