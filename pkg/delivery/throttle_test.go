package delivery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
)

// throttleBy throttles with an interval, and groups that a function names.
type throttleBy struct {
	interval time.Duration
	group    func(*corev1.Event) string
}

func (t throttleBy) Interval() time.Duration { return t.interval }

func (t throttleBy) Group(e *corev1.Event) [sha256.Size]byte {
	return sha256.Sum256([]byte(t.group(e)))
}

// perEvent has a group for each Event.
func perEvent(interval time.Duration) Throttle {
	return throttleBy{interval, func(e *corev1.Event) string { return string(e.UID) }}
}

// newThrottledBench delivers to the receiver a, from the beginning of each term on.
func newThrottledBench(t *testing.T, throttle Throttle) *bench {
	t.Helper()
	b := newBench(t)
	b.throttle = throttle
	b.apply(named("a"))
	b.begin()
	time.Sleep(2 * cursorInterval) // its starting point is stored
	return b
}

func (b *bench) wantDelivered(want ...string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.delivered("a"); !slices.Equal(got, want) {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

// The first version of a group is delivered at once. The others are one summary when the interval
// ends, though nothing is observed then, and the next interval begins. One without any ends the group.
func TestAThrottledGroupIsOneVersionAndASummaryPerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Minute))
		first := b.write("e", 4)
		other := b.write("other", 1)
		want := []string{first[0], other[0]}
		b.wantDelivered(want...)
		if s := b.status("a"); s.Filtered["all"] != 3 || s.Pending != 0 || s.Summaries != (Summaries{Pending: 1}) || s.Cursor.ResourceVersion != fmt.Sprint(b.history.head) {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute - time.Second)
		b.wantDelivered(want...)
		time.Sleep(time.Second)
		want = append(want, "3 to "+first[3])
		b.wantDelivered(want...)
		second := b.write("e", 2)
		b.wantDelivered(want...)
		time.Sleep(time.Minute)
		want = append(want, "2 to "+second[1])
		b.wantDelivered(want...)
		if s := b.status("a"); s.Filtered["all"] != 5 || s.Delivered != 2 || s.Summaries != (Summaries{Delivered: 2}) || s.State != StateWaiting {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute)
		b.wantDelivered(append(want, b.write("e", 1)...)...)
		b.end(nil)
	})
}

// Groups of different ends have each its own, in one batch too.
func TestEachGroupHasItsOwnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Minute))
		var firsts, lasts [10]string
		for i := range 10 {
			ids := b.write(fmt.Sprint("e", i), 3)
			firsts[i], lasts[i] = ids[0], "2 to "+ids[2]
			time.Sleep(time.Second)
		}
		b.wantDelivered(firsts[:]...)
		time.Sleep(50 * time.Second)
		for i := range 10 {
			b.wantDelivered(append(firsts[:], lasts[:i+1]...)...)
			time.Sleep(time.Second)
		}
		b.end(nil)
	})
}

// While the destination is away, a batch is read, and what was read is late.
func TestASummaryIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Minute))
		ids := b.write("e", 3)
		attempts := 0
		b.set(func() {
			b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
				attempts++
				return 0, errors.New("away")
			}
		})
		time.Sleep(2 * time.Minute)
		later := b.write("late", 3)
		time.Sleep(10 * time.Minute)
		if s := b.status("a"); s.Lag != 10*time.Minute+2*sendInterval || s.Pending != 3 || s.Summaries != (Summaries{Pending: 1}) || attempts < 10 {
			t.Errorf("%d attempts, %+v", attempts, s)
		}
		b.set(func() { delete(b.sends, "a") })
		time.Sleep(time.Minute)
		b.wantDelivered(ids[0], "2 to "+ids[2], later[0])
		time.Sleep(time.Minute)
		b.wantDelivered(ids[0], "2 to "+ids[2], later[0], "2 to "+later[2])
		b.end(nil)
	})
}

// Summaries fit into requests, and one that is refused for good is given up alone.
func TestARejectedSummaryIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.throttle = perEvent(time.Minute)
		bad := ""
		most := 0
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			most = max(most, len(batch))
			if slices.ContainsFunc(batch, func(r receiver.Record) bool { return r.ID == bad }) {
				return 0, &receiver.Error{Permanent: true, Err: errors.New("413")}
			}
			return 0, nil
		}
		b.apply(v1alpha1.Receiver{Name: "a", BatchSize: new(int32(4))})
		b.begin()
		time.Sleep(2 * cursorInterval)
		for i := range 10 {
			ids := b.write(fmt.Sprint("e", i), 3)
			if i == 5 {
				b.set(func() { bad = ids[2] })
			}
		}
		time.Sleep(time.Hour)
		if s := b.status("a"); s.Summaries != (Summaries{Delivered: 9, Rejected: 1}) || s.Rejected != 0 || s.Delivered != 10 || most > 4 {
			t.Errorf("requests of %d, %+v", most, s)
		}
		b.end(nil)
	})
}

// Summaries are lost with their term, and counted, and so are those of a receiver that is changed.
func TestSummariesEndWithTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Minute))
		ids := b.write("e", 3)
		b.end(nil)
		b.begin()
		again := b.write("e", 3)
		b.apply(v1alpha1.Receiver{Name: "a", BatchSize: new(int32(7))})
		time.Sleep(time.Hour)
		b.wantDelivered(ids[0], again[0])
		if s := b.status("a"); s.Summaries != (Summaries{Lost: 2}) || s.Filtered["all"] != 4 {
			t.Errorf("%+v", s)
		}
		b.end(nil)
	})
}

// New routes end all groups: what they deliver is delivered at once, before what comes later, and
// what they do not is not delivered. Other changes leave the groups.
func TestNewRoutesEndTheGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Hour))
		a, secret := b.write("a", 3), b.write("secret", 3)
		want := []string{a[0], secret[0]}
		b.apply(named("a"), named("b"))
		want = append(want, b.write("other", 1)...)
		b.wantDelivered(want...)

		b.set(func() { b.filter = func(_ string, e *corev1.Event) bool { return e.UID == "secret" } })
		b.routes = []v1alpha1.Route{{Name: "changed"}}
		b.apply(named("a"), named("b"))
		later := b.write("a", 1)
		want = append(want, "2 to "+a[2], later[0])
		b.wantDelivered(want...)
		if s := b.status("a"); s.Summaries != (Summaries{Delivered: 1, Lost: 1}) {
			t.Errorf("%+v", s)
		}
		// Nothing is observed after the next change.
		again := b.write("a", 2)
		b.set(func() { b.filter = func(string, *corev1.Event) bool { return true } })
		b.routes = nil
		b.apply(named("a"), named("b"))
		time.Sleep(2 * time.Hour)
		b.wantDelivered(want...)
		if s := b.status("a"); s.Summaries != (Summaries{Delivered: 1, Lost: 2}) || s.Filtered["all"] != 6 {
			t.Errorf("%q: %+v", again, s)
		}
		b.end(nil)
	})
}

// etcd is restored from a backup: what is delivered again begins new groups.
func TestARestoredHistoryBeginsNewGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Hour))
		ids := b.write("e", 3)
		b.history.restore(b.history.head - 1)
		time.Sleep(time.Minute)
		b.wantDelivered(ids[0], "2 to "+ids[2], ids[1])
		b.end(nil)
	})
}

// A tenant invents groups without an end, and large Events. The groups of others stay, and nothing
// of its own is lost: it is throttled less.
func TestThrottledGroupsAreBoundedAndFair(t *testing.T) {
	now := time.Now()
	var rv int
	message := strings.Repeat("m", 1000+6*100_000)
	version := func(namespace, uid string, size int) observer.Version {
		rv++
		e := &corev1.Event{Message: message[:size]}
		e.Namespace, e.UID, e.ResourceVersion = namespace, types.UID(uid), fmt.Sprint(rv)
		return observer.Version{Event: e, Observed: now}
	}
	by := perEvent(time.Hour)
	limit := int64(MaxThrottleBytes)
	th := newThrottler(limit)
	throttled, summaries := 0, 0
	add := func(v observer.Version) bool {
		ok, _ := th.throttle("route", by, v, now)
		if ok {
			throttled++
		}
		for _, s := range th.take(now) {
			summaries += s.n
		}
		return ok
	}
	for i := range 100 {
		for range 2 {
			add(version("quiet", fmt.Sprint("quiet-", i), 100))
		}
	}
	for i := range 20_000 {
		add(version("flood", fmt.Sprint("flood-", i), 100))
		add(version("flood", fmt.Sprint("flood-", i), 1000+i%7*100_000))
	}
	if throttled != 20_100 || summaries >= throttled || summaries < 15_000 {
		t.Errorf("%d versions are throttled, and %d in summaries that are due", throttled, summaries)
	}
	bytes := int64(th.groups.Len()) * groupBytes
	for _, g := range th.groups.Values() {
		if g.n > 0 {
			bytes += eventsize.Of(g.latest.Event)
		}
	}
	if bytes > limit || th.ends.Len() != th.groups.Len() {
		t.Errorf("%d groups in %d bytes, %d of them have an end", th.groups.Len(), bytes, th.ends.Len())
	}
	for i := range 100 {
		if !add(version("quiet", fmt.Sprint("quiet-", i), 100)) {
			t.Fatalf("group %d of another namespace is gone", i)
		}
	}
	for _, s := range th.take(now.Add(time.Hour)) {
		summaries += s.n
	}
	if summaries != throttled {
		t.Errorf("%d versions are throttled, and %d in summaries", throttled, summaries)
	}
	if th.take(now.Add(3 * time.Hour)); th.groups.Len() != 0 || th.ends.Len() != 0 || !th.next().IsZero() {
		t.Errorf("%d groups are left", th.groups.Len())
	}
}

// Lists are in no order of versions, and may return a version again.
func TestASummaryIsOfTheHighestVersionThatWasNotDelivered(t *testing.T) {
	now := time.Now()
	version := func(rv string) observer.Version {
		e := &corev1.Event{}
		e.UID, e.ResourceVersion = "uid", rv
		return observer.Version{Event: e}
	}
	by := throttleBy{time.Hour, func(*corev1.Event) string { return "" }}
	th := newThrottler(MaxThrottleBytes)
	for i, rv := range []string{"90", "70", "80", "90", "100", "95", "90"} {
		if throttled, first := th.throttle("", by, version(rv), now); throttled != (i > 0) || first != (i == 1) {
			t.Errorf("version %d: %t, %t", i, throttled, first)
		}
	}
	due := th.take(now.Add(time.Hour))
	if len(due) != 1 || due[0].latest.Event.ResourceVersion != "100" || due[0].n != 4 {
		t.Errorf("%+v", due)
	}
	if throttled, first := th.throttle("", by, version("100"), now); !throttled || first {
		t.Error("the version of a summary is delivered again in the next one")
	}
}

// A summary that was delivered after a failure ends the retries: a later configuration that leaves the
// receiver as it is restarts nothing, and keeps its groups.
func TestASummaryThatWasRetriedIsNoReasonForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newThrottledBench(t, perEvent(time.Minute))
		b.write("e", 3)
		fails := true
		b.set(func() {
			b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
				if fails {
					fails = false
					return 0, errors.New("500")
				}
				return 0, nil
			}
		})
		time.Sleep(time.Minute + maxBackoff)
		b.write("e", 2)
		b.apply(named("a"))
		synctest.Wait()
		if s := b.status("a"); b.opened["a"] != 1 || s.Summaries != (Summaries{Delivered: 1, Pending: 1}) {
			t.Errorf("opened %d times: %+v", b.opened["a"], s.Summaries)
		}
		b.end(nil)
	})
}

// An Event may be in the groups of two routes.
func TestSummariesThatAreDueTogetherAreInTheOrderOfTheirVersions(t *testing.T) {
	now := time.Now()
	by := perEvent(time.Hour)
	th := newThrottler(MaxThrottleBytes)
	for _, rv := range []string{"1/a", "2/b", "10/a", "5/b"} {
		rv, uid, _ := strings.Cut(rv, "/")
		e := &corev1.Event{}
		e.UID, e.ResourceVersion = types.UID(uid), rv
		th.throttle("", by, observer.Version{Event: e}, now)
	}
	due := th.take(now.Add(time.Hour))
	if len(due) != 2 || due[0].latest.Event.ResourceVersion != "5" || due[1].latest.Event.ResourceVersion != "10" {
		t.Errorf("%+v", due)
	}
}
