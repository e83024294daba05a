package ha

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

// sharesAnnotation has the contributors to an Event's count: docs/counting.md.
const sharesAnnotation = "eventd.io/shares"

// clientKey stands for a posted name in that annotation.
func clientKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
}

// shares are the contributors of an Event, the sinks and the clients.
type shares struct{ sinks, clients map[string]uint64 }

func parseShares(annotation string) (shares, error) {
	s := shares{sinks: map[string]uint64{}, clients: map[string]uint64{}}
	version, parts, _ := strings.Cut(annotation, ";")
	if version != "v1" {
		return s, fmt.Errorf("shares %q are of another version", annotation)
	}
	for part := range strings.SplitSeq(parts, ";") {
		list := map[string]map[string]uint64{"s=": s.sinks, "n=": s.clients}[part[:min(2, len(part))]]
		if list == nil {
			continue
		}
		for entry := range strings.SplitSeq(part[2:], ",") {
			who, value, _ := strings.Cut(entry, ":")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return s, fmt.Errorf("shares %q: %w", annotation, err)
			}
			list[who] = n
		}
	}
	return s, nil
}

// commit is one write that the apiserver has stored.
type commit struct {
	at     time.Time // of the watch event
	of     series
	added  int64    // to the count
	keys   []string // of the names that it counts and the write before does not have
	writer string   // the sink instance that made it
}

// version is the last known state of a stored Event.
type version struct {
	count int64
	shares
}

// journal has every write of Events in one namespace, in the order of the apiserver.
// It continues its watch after the apiserver was away, and misses nothing.
type journal struct {
	following sync.WaitGroup

	mu      sync.Mutex
	changed notifier
	known   map[types.UID]version
	commits []commit
	err     error // what ended it
}

// keepJournal begins a journal, which ends with the test.
func keepJournal(t *testing.T, config *rest.Config, namespace string) *journal {
	t.Helper()
	events := kubernetes.NewForConfigOrDie(config).CoreV1().Events(namespace)
	list, err := events.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{known: map[types.UID]version{}}
	for i := range list.Items {
		j.known[list.Items[i].UID], _ = versionOf(&list.Items[i])
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	j.following.Go(func() {
		err := follow(ctx, list.ResourceVersion, false, events.Watch, func(e watch.Event) error {
			return j.note(time.Now(), e)
		})
		j.mu.Lock()
		defer j.mu.Unlock()
		j.err = err
		j.changed.notify()
	})
	t.Cleanup(func() {
		cancel()
		j.following.Wait()
		if j.err != nil && !errors.Is(j.err, context.Canceled) {
			t.Errorf("the journal ended: %v", j.err)
		}
	})
	return j
}

// follow calls note for all watch events after a resource version. It continues a
// watch that ends. If the apiserver no longer has the resource version, mayMiss allows
// to continue from the current state.
func follow(ctx context.Context, from string, mayMiss bool, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), note func(watch.Event) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		w, err := begin(ctx, metav1.ListOptions{ResourceVersion: from})
		if err != nil { // the apiserver is away
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			continue
		}
		for e := range w.ResultChan() {
			if e.Type == watch.Error {
				if status, ok := e.Object.(*metav1.Status); ok && status.Reason == metav1.StatusReasonExpired {
					if !mayMiss {
						w.Stop()
						return errors.New("the watch has missed something: " + status.Message)
					}
					from = "" // the current state, and what follows
				}
				break // the apiserver stops
			}
			if err := note(e); err != nil {
				w.Stop()
				return err
			}
			if from, err = resourceVersion(e.Object); err != nil {
				w.Stop()
				return err
			}
		}
		w.Stop()
	}
	return ctx.Err()
}

func resourceVersion(o runtime.Object) (string, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return "", fmt.Errorf("a watch sent a %T", o)
	}
	return m.GetResourceVersion(), nil
}

func versionOf(e *corev1.Event) (version, error) {
	s, err := parseShares(e.Annotations[sharesAnnotation])
	return version{stored.Count(e), s}, err
}

// note adds a watch event.
func (j *journal) note(at time.Time, e watch.Event) error {
	event, ok := e.Object.(*corev1.Event)
	if !ok {
		return fmt.Errorf("a watch of Events sent a %T", e.Object)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Type == watch.Deleted {
		delete(j.known, event.UID)
		return nil
	}
	now, err := versionOf(event)
	if err != nil {
		return fmt.Errorf("%s: %w", event.Name, err)
	}
	before := j.known[event.UID]
	j.known[event.UID] = now
	c := commit{at: at, of: seriesOf(event), added: now.count - before.count}
	for key := range now.clients {
		if _, there := before.clients[key]; !there {
			c.keys = append(c.keys, key)
		}
	}
	for instance, sequence := range now.sinks {
		if before.sinks[instance] != sequence {
			c.writer = instance
		}
	}
	j.commits = append(j.commits, c)
	j.changed.notify()
	return nil
}

func seriesOf(e *corev1.Event) series { return series{e.InvolvedObject.Name, e.Reason} }

// since returns the commits that the watch has seen after a moment.
func (j *journal) since(moment time.Time) []commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	first, _ := slices.BinarySearchFunc(j.commits, moment, func(c commit, at time.Time) int { return c.at.Compare(at) })
	return slices.Clone(j.commits[first:])
}

// waitCommit waits for a commit after a moment that satisfies is, and returns it.
func (j *journal) waitCommit(t *testing.T, what string, moment time.Time, is func(commit) bool) commit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	j.mu.Lock()
	defer j.mu.Unlock()
	for looked := 0; ; {
		for ; looked < len(j.commits); looked++ {
			if c := j.commits[looked]; c.at.After(moment) && is(c) {
				return c
			}
		}
		if j.err != nil {
			t.Fatalf("waiting for %s: %v", what, j.err)
		}
		if err := j.changed.wait(ctx, &j.mu); err != nil {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Most other tests need this.
func TestJournalSaysWhoWroteWhat(t *testing.T) {
	const one, two, three = "0000000000000001", "0000000000000002", "0000000000000003"
	a, b, c := clientKey("a"), clientKey("b"), clientKey("c")
	event := func(uid string, count int32, shares string) watch.Event {
		return watch.Event{Type: watch.Modified, Object: &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{UID: types.UID(uid), Annotations: map[string]string{sharesAnnotation: shares}},
			InvolvedObject: corev1.ObjectReference{Name: "pod"}, Reason: "Tested", Count: count,
		}}
	}
	j := &journal{known: map[types.UID]version{}}
	began := time.Now()
	for i, e := range []watch.Event{
		event("x", 1, "v1;c="+one+";s="+one+":7;n="+a+":1"),
		event("x", 4, "v1;c="+one+";s="+one+":7,"+two+":3;n="+a+":1,"+b+":1"),
		event("x", 5, "v1;c="+one+";s="+two+":3,"+one+":9;n="+b+":1,"+c+":1"),
		event("y", 2, "v1;c="+three+";s="+three+":1"),
	} {
		if err := j.note(began.Add(time.Duration(i)), e); err != nil {
			t.Fatal(err)
		}
	}
	of := series{"pod", "Tested"}
	want := []commit{
		{began, of, 1, []string{a}, one},
		{began.Add(1), of, 3, []string{b}, two},
		{began.Add(2), of, 1, []string{c}, one},
		{began.Add(3), of, 2, nil, three},
	}
	if got := j.since(began); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the journal is\n%v, want\n%v", got, want)
	}
	if got := j.since(began.Add(3)); len(got) != 1 {
		t.Errorf("%d commits since the last one", len(got))
	}
	if err := j.note(began, event("z", 1, "v2;x")); err == nil {
		t.Error("an unknown version is accepted")
	}
}
