package ha

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
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
type journal struct {
	events typedcorev1.EventInterface

	mu       sync.Mutex
	known    map[types.UID]version
	commits  []commit
	versions map[delivery]bool // of all commits
}

// keepJournal begins a journal, which ends with the test.
func keepJournal(t *testing.T, config *rest.Config, namespace string) *journal {
	t.Helper()
	j := &journal{events: kubernetes.NewForConfigOrDie(config).CoreV1().Events(namespace), known: map[types.UID]version{}, versions: map[delivery]bool{}}
	follow(t, j.events.Watch, false, func(kind watch.EventType, e *corev1.Event) error { return j.note(time.Now(), kind, e) })
	return j
}

type beginWatch = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// follow calls note for all objects that there are and for all watch events, until the
// test ends. It continues a watch that ends. If the apiserver no longer has the next
// version, mayMiss allows to continue from the current state.
func follow[T metav1.Object](t *testing.T, begin beginWatch, mayMiss bool, note func(watch.EventType, T) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	version := "" // of the last watch event
	noteOf := func(e watch.Event) error {
		if e.Type == watch.Error {
			status, ok := e.Object.(*metav1.Status)
			if ok && status.Reason == metav1.StatusReasonExpired && !mayMiss {
				return errors.New("the watch has missed something: " + status.Message)
			}
			if ok && status.Reason == metav1.StatusReasonExpired {
				version = ""
			}
			return nil // the apiserver ends the watch
		}
		object, ok := e.Object.(T)
		if !ok {
			return fmt.Errorf("a watch sent a %T", e.Object)
		}
		version = object.GetResourceVersion()
		return note(e.Type, object)
	}
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			w, err := begin(ctx, metav1.ListOptions{ResourceVersion: version})
			if err != nil { // the apiserver is away
				_ = await.Sleep(ctx, 100*time.Millisecond)
				continue
			}
			for e := range w.ResultChan() {
				if err := noteOf(e); err != nil {
					t.Error(err)
					cancel()
				}
			}
			w.Stop()
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
}

func versionOf(e *corev1.Event) (version, error) {
	s, err := parseShares(e.Annotations[sharesAnnotation])
	return version{stored.Count(e), s}, err
}

// note adds a watch event.
func (j *journal) note(at time.Time, kind watch.EventType, e *corev1.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if kind == watch.Deleted {
		delete(j.known, e.UID)
		return nil
	}
	now, err := versionOf(e)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	before := j.known[e.UID]
	j.known[e.UID] = now
	j.versions[delivery{e.UID, e.ResourceVersion}] = true
	c := commit{at: at, of: seriesOf(e), added: now.count - before.count}
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

// all returns all versions of Events that were stored.
func (j *journal) all() map[delivery]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.versions)
}

// waitComplete waits until the watch has seen all that is stored.
func (j *journal) waitComplete(t *testing.T) {
	t.Helper()
	stored, err := j.events.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the journal has all that is stored", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return !slices.ContainsFunc(stored.Items, func(e corev1.Event) bool {
			now, err := versionOf(&e)
			return err != nil || !reflect.DeepEqual(j.known[e.UID], now)
		})
	})
}

// waitCommit waits for a commit after a moment that satisfies is, and returns it.
func (j *journal) waitCommit(t *testing.T, what string, moment time.Time, is func(commit) bool) (found commit) {
	t.Helper()
	await.Until(t, what, func() bool {
		for _, c := range j.since(moment) {
			if is(c) {
				found = c
				return true
			}
			moment = c.at
		}
		return false
	})
	return found
}

// Most other tests need this.
func TestJournalSaysWhoWroteWhat(t *testing.T) {
	const one, two, three = "0000000000000001", "0000000000000002", "0000000000000003"
	a, b, c := clientKey("a"), clientKey("b"), clientKey("c")
	event := func(uid string, count int32, shares string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{UID: types.UID(uid), Annotations: map[string]string{sharesAnnotation: shares}},
			InvolvedObject: corev1.ObjectReference{Name: "pod"}, Reason: "Tested", Count: count,
		}
	}
	j := &journal{known: map[types.UID]version{}, versions: map[delivery]bool{}}
	began := time.Now()
	for i, e := range []*corev1.Event{
		event("x", 1, "v1;c="+one+";s="+one+":7;n="+a+":1"),
		event("x", 4, "v1;c="+one+";s="+one+":7,"+two+":3;n="+a+":1,"+b+":1"),
		event("x", 5, "v1;c="+one+";s="+two+":3,"+one+":9;n="+b+":1,"+c+":1"),
		event("y", 2, "v1;c="+three+";s="+three+":1"),
	} {
		if err := j.note(began.Add(time.Duration(i)), watch.Modified, e); err != nil {
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
	if err := j.note(began, watch.Modified, event("z", 1, "v2;x")); err == nil {
		t.Error("an unknown version is accepted")
	}
}

// window is how many names of one series an Event stores: docs/counting.md.
const window = 64

// fate has the outcomes of all names that were posted.
type fate struct {
	retried  int // posted more than once
	deferred int // acknowledged with 202
	// lost were acknowledged as written, and are not stored.
	lost []post
	// forgotten were acknowledged as deferred, and are not stored.
	forgotten []post
	// twice were counted a second time while their names were stored, outside when they
	// no longer were.
	twice, outside []post
	// unnamed occurrences were added to counts without a name.
	unnamed int64
}

// fates compares the answers to the clients with what was stored.
func (l *load) fates() fate {
	posts, _ := l.ledger()
	return fatesOf(posts, l.journal.since(time.Time{}))
}

func fatesOf(posts map[string]post, commits []commit) fate {
	counted, unnamed := countings(posts, commits)
	f := fate{unnamed: unnamed}
	for _, key := range slices.Sorted(maps.Keys(posts)) {
		made := posts[key]
		if made.tries > 1 {
			f.retried++
		}
		if made.code == http.StatusAccepted {
			f.deferred++
		}
		times := counted[key]
		switch {
		case len(times) == 0 && (made.code == http.StatusAccepted || made.code == http.StatusConflict):
			// 409 says that there was an answer, which the client did not get: it may have been 202.
			f.forgotten = append(f.forgotten, made)
		case len(times) == 0 && made.code != 0:
			f.lost = append(f.lost, made)
		}
		for i := 1; i < len(times); i++ {
			if times[i]-times[i-1] <= window {
				f.twice = append(f.twice, made)
			} else {
				f.outside = append(f.outside, made)
			}
		}
	}
	return f
}

// countings has for each name how many names of its series were counted before, for
// each write that counts it. unnamed is the number of occurrences of these series that
// were counted without a name.
func countings(posts map[string]post, commits []commit) (counted map[string][]int, unnamed int64) {
	plain := map[series]bool{}
	for _, made := range posts {
		plain[made.of] = true
	}
	counted, before := map[string][]int{}, map[series]int{}
	for _, c := range commits {
		if !plain[c.of] {
			continue
		}
		unnamed += c.added - int64(len(c.keys))
		for _, key := range c.keys {
			counted[key] = append(counted[key], before[c.of])
		}
		before[c.of] += len(c.keys)
	}
	return counted, unnamed
}

// wantKept checks that all that was acknowledged as written is stored, and that
// nothing was counted twice within the window.
func (f fate) wantKept(t *testing.T) {
	t.Helper()
	if len(f.lost) > 0 {
		t.Errorf("%d occurrences are not stored that were acknowledged as written, such as %+v", len(f.lost), f.lost[0])
	}
	if len(f.twice) > 0 {
		t.Errorf("%d occurrences are counted twice, such as %+v", len(f.twice), f.twice[0])
	}
	if f.unnamed != 0 {
		t.Errorf("%d occurrences are counted under no name", f.unnamed)
	}
}

func TestFatesOfNamesAreToldApart(t *testing.T) {
	of := series{"hot", "Tested"}
	posts := map[string]post{}
	answered := func(key string, code int) post {
		posts[key] = post{name: key, of: of, code: code, tries: 1}
		return posts[key]
	}
	answered("written", http.StatusCreated)
	answered("found", http.StatusConflict)
	answered("deferred", http.StatusAccepted)
	want := fate{
		deferred:  2,
		lost:      []post{answered("lost", http.StatusCreated)},
		forgotten: []post{answered("forgotten", http.StatusAccepted), answered("not got", http.StatusConflict)},
		twice:     []post{answered("twice", http.StatusCreated)},
		outside:   []post{answered("outside", http.StatusCreated)},
		unnamed:   3,
	}
	commits := []commit{
		{of: of, added: 5, keys: []string{"written", "found", "deferred", "twice", "outside"}},
		{of: of, added: 1, keys: []string{"twice"}},
		{of: of, added: 3, keys: nil},
		{of: series{"other", "Recorded"}, added: 7, keys: []string{"recorder"}},
	}
	for i := range window {
		key := fmt.Sprint("more-", i)
		answered(key, http.StatusCreated)
		commits = append(commits, commit{of: of, added: 1, keys: []string{key}})
	}
	commits = append(commits, commit{of: of, added: 1, keys: []string{"outside"}})
	if got := fatesOf(posts, commits); !reflect.DeepEqual(got, want) {
		t.Errorf("the fates are\n%+v, want\n%+v", got, want)
	}
}
