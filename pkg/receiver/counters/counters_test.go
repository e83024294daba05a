package counters

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/rules"
)

// use puts metrics in force.
func use(t testing.TB, c *Counters, metrics ...v1alpha1.Metric) {
	t.Helper()
	for i := range metrics {
		if metrics[i].MaxSeries == nil {
			metrics[i].MaxSeries = new(int32(1000))
		}
	}
	set, err := rules.Compile(&v1alpha1.EventdConfiguration{Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	var compiled []Metric
	for _, m := range set.Metrics() {
		compiled = append(compiled, m)
	}
	c.Use(compiled)
}

// send sends versions of Events, each in a batch.
func send(t testing.TB, r *Receiver, events ...*corev1.Event) {
	t.Helper()
	for _, e := range events {
		if rejected, err := r.Send(t.Context(), []receiver.Record{{Event: e}}); rejected != 0 || err != nil {
			t.Fatal(rejected, err)
		}
	}
}

// version is an Event of the namespace shop that was created at a time.
func version(uid string, count int32, created time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", CreationTimestamp: metav1.NewTime(created.Truncate(time.Second))},
		Reason:     "BackOff", Count: count,
	}
}

// want checks all series: lines such as {namespace="shop"} 3.
func want(t testing.TB, c *Counters, name string, lines ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	name = Prefix + name + "_total"
	text, err := testutil.CollectAndFormat(registry, expfmt.TypeTextPlain, name)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimPrefix(strings.TrimSpace(line), name))
		}
	}
	slices.Sort(lines)
	if slices.Sort(got); !slices.Equal(got, lines) {
		t.Errorf("%s is %q, want %q", name, got, lines)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestAVersionCountsWhatItAddsToItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(1500 * time.Millisecond)
		const before, within, later = 0, time.Second, 2 * time.Second
		series := func(count int32, created time.Duration) *corev1.Event {
			e := version("a", 7, began.Add(created))
			e.Series = &corev1.EventSeries{Count: count}
			return e
		}
		plain := func(count int32, created time.Duration) *corev1.Event { return version("a", count, began.Add(created)) }
		for name, test := range map[string]struct {
			versions []*corev1.Event
			want     int
		}{
			"new":                       {[]*corev1.Event{plain(5, later)}, 5},
			"new, without a count":      {[]*corev1.Event{plain(0, later)}, 1},
			"of before":                 {[]*corev1.Event{plain(5, before)}, 1},
			"of the same second":        {[]*corev1.Event{plain(5, within)}, 1},
			"of before, seen again":     {[]*corev1.Event{plain(5, before), plain(9, before)}, 5},
			"seen again":                {[]*corev1.Event{plain(5, later), plain(6, later), plain(8, later)}, 8},
			"the same version":          {[]*corev1.Event{plain(5, later), plain(5, later)}, 5},
			"changed, but not repeated": {[]*corev1.Event{plain(0, later), plain(1, later), plain(0, later)}, 1},
			"becomes less, then more":   {[]*corev1.Event{plain(5, later), plain(2, later), plain(4, later)}, 7},
			"negative":                  {[]*corev1.Event{plain(-5, later), plain(-7, later)}, 1},
			"a series":                  {[]*corev1.Event{series(2, later), series(6, later)}, 6},
			"becomes a series":          {[]*corev1.Event{plain(0, later), series(4, later)}, 4},
			"the highest count":         {[]*corev1.Event{plain(-1<<31, later), plain(1<<31-1, later)}, 1<<31 - 1},
		} {
			c := &Counters{}
			use(t, c, v1alpha1.Metric{Name: "events"})
			send(t, c.Receiver(), test.versions...)
			t.Log(name)
			want(t, c, "events", fmt.Sprintf(" %v", format(test.want)))
		}
	})
}

// format formats a value as Prometheus does.
func format(n int) string {
	if n == 1<<31-1 {
		return "2.147483647e+09"
	}
	return fmt.Sprint(n)
}

// What a metric does not match counts for none, and its count is known all the same.
func TestAMetricCountsWhatItMatches(t *testing.T) {
	c := &Counters{}
	use(t, c, v1alpha1.Metric{Name: "many", Match: "event.count > 10"}, v1alpha1.Metric{Name: "all"})
	r := c.Receiver()
	created := time.Now().Add(time.Minute)
	send(t, r, version("a", 8, created), version("a", 10, created), version("a", 13, created), version("b", 20, created))
	want(t, c, "many", " 23")
	want(t, c, "all", " 33")
}

func TestLabelsAreFieldsOfTheEvent(t *testing.T) {
	c := &Counters{}
	use(t, c, v1alpha1.Metric{Name: "events", Help: "What happened.", Labels: map[string]string{"namespace": "metadata.namespace", "reason": "reason"}})
	r := c.Receiver()
	want(t, c, "events", `{namespace="other",reason="other"} 0`)
	send(t, r, version("a", 1, time.Now()), version("b", 1, time.Now()))
	hostile := version("c", 1, time.Now())
	hostile.Reason = "a\xff\"\n" + strings.Repeat("ü", 100)
	send(t, r, hostile)
	rest := version("d", 1, time.Now())
	rest.Reason, rest.Namespace = "other", "other"
	send(t, r, rest)
	for _, namespace := range []string{"ab", "a"} { // they read alike
		e := version("uid-"+namespace, 1, time.Now())
		e.Namespace, e.Reason = namespace, "abc"[len(namespace):]
		send(t, r, e)
	}
	want(t, c, "events", `{namespace="other",reason="other"} 1`, `{namespace="shop",reason="BackOff"} 2`,
		`{namespace="shop",reason="a�\"\n`+strings.Repeat("ü", 61)+`"} 1`, `{namespace="a",reason="bc"} 1`, `{namespace="ab",reason="c"} 1`)
}

// A series would else keep the message that its value was cut from.
func TestASeriesKeepsNoEvent(t *testing.T) {
	c := &Counters{}
	use(t, c, v1alpha1.Metric{Name: "events", Labels: map[string]string{"message": "message"}})
	e := version("a", 1, time.Now())
	e.Message = strings.Repeat("m", 10*maxLabelBytes)
	send(t, c.Receiver(), e)
	series := c.list()[0].byKey
	for value, s := range series {
		if unsafe.StringData(s.values[0]) == unsafe.StringData(e.Message) || unsafe.StringData(value) == unsafe.StringData(e.Message) {
			t.Error("the value shares the memory of the message")
		}
	}
	if len(series) != 1 {
		t.Errorf("%d series", len(series))
	}
}

// One namespace invents values without an end. Another one still has series of its own.
func TestANamespaceTakesHalfOfTheSeriesThatOthersLeave(t *testing.T) {
	c := &Counters{}
	use(t, c, v1alpha1.Metric{Name: "events", MaxSeries: new(int32(100)), Labels: map[string]string{"object": "involvedObject.name"}})
	r := c.Receiver()
	flood := func(namespace string, n int) {
		for i := range n {
			e := version(fmt.Sprint(namespace, i), 1, time.Now())
			e.Namespace, e.InvolvedObject.Name = namespace, fmt.Sprint(namespace, "-", i)
			send(t, r, e)
		}
	}
	of := c.list()[0].series
	for _, step := range []struct {
		namespace string
		total     int
		rest      int64
	}{{"first", 50, 9_950}, {"second", 75, 9_950 + 9_975}, {"third", 88, 9_950 + 9_975 + 9_987}} {
		flood(step.namespace, 10_000)
		if len(of.byKey) != step.total || of.rest.count != step.rest {
			t.Errorf("after %s: %d series, and %d occurrences of the rest", step.namespace, len(of.byKey), of.rest.count)
		}
	}
	for i := range 100 {
		flood(fmt.Sprint("namespace-", i), 10)
	}
	if len(of.byKey) != 100 || len(of.held) > 100 {
		t.Errorf("%d series of %d namespaces", len(of.byKey), len(of.held))
	}
	var sum int64
	for _, s := range of.byKey {
		sum += s.count
	}
	if sum += of.rest.count; sum != 31_000 {
		t.Errorf("%d occurrences are counted", sum)
	}
}

func TestAReloadKeepsWhatHasNotChanged(t *testing.T) {
	c := &Counters{}
	same := v1alpha1.Metric{Name: "same", Labels: map[string]string{"reason": "reason"}}
	use(t, c, same, v1alpha1.Metric{Name: "changed"}, v1alpha1.Metric{Name: "removed"})
	r := c.Receiver()
	send(t, r, version("a", 1, time.Now()))
	use(t, c, v1alpha1.Metric{Name: "added"}, v1alpha1.Metric{Name: "changed", Match: "event.count > 1"}, same)
	want(t, c, "same", `{reason="BackOff"} 1`, `{reason="other"} 0`)
	send(t, r, version("a", 3, time.Now()))
	want(t, c, "same", `{reason="BackOff"} 3`, `{reason="other"} 0`)
	want(t, c, "changed", " 2")
	want(t, c, "added", " 2")
	want(t, c, "removed")
	use(t, c)
	want(t, c, "same")
}

// A new term begins with a new receiver: what others have counted meanwhile is not counted again.
func TestANewTermKnowsNothing(t *testing.T) {
	c := &Counters{}
	use(t, c, v1alpha1.Metric{Name: "events"})
	created := time.Now().Add(-time.Hour)
	send(t, c.Receiver(), version("a", 5, created))
	send(t, c.Receiver(), version("a", 90, created), version("a", 91, created))
	want(t, c, "events", " 3")
}

// The receiver counts while metrics are read and replaced.
func TestCountersAreSafeForConcurrentUse(t *testing.T) {
	c := &Counters{}
	events := v1alpha1.Metric{Name: "events", Labels: map[string]string{"uid": "metadata.uid"}}
	use(t, c, events)
	var group sync.WaitGroup
	group.Go(func() {
		r := c.Receiver()
		for i := range 500 {
			send(t, r, version(fmt.Sprint(i%20), 1, time.Now()))
		}
	})
	group.Go(func() {
		for range 20 {
			use(t, c, events)
		}
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	for range 50 {
		if _, err := registry.Gather(); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	if n := len(c.list()[0].byKey); n != 20 {
		t.Errorf("%d series", n)
	}
}

// Whatever an Event has in it can be exported.
func FuzzCount(f *testing.F) {
	f.Add("shop", "BackOff", "a", int32(3), int32(5), int64(1_800_000_000))
	f.Add("", "other", "\xff", int32(-1), int32(1<<31-1), int64(-1<<63))
	f.Fuzz(func(t *testing.T, namespace, reason, label string, count, next int32, seconds int64) {
		c := &Counters{}
		use(t, c, v1alpha1.Metric{Name: "events", MaxSeries: new(int32(2)), Labels: map[string]string{
			"namespace": "metadata.namespace", "reason": "reason", "label": `metadata.labels["a"]`,
		}})
		r := c.Receiver()
		for _, n := range []int32{count, next} {
			send(t, r, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{UID: "a", Namespace: namespace, Labels: map[string]string{"a": label}, CreationTimestamp: metav1.Unix(seconds, 0)},
				Reason:     reason, Count: n,
			})
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.
		for _, m := range families[0].GetMetric() {
			sum += m.GetCounter().GetValue()
		}
		first := max(count, 1)
		least, most := float64(1)+max(0, float64(max(next, 1))-float64(first)), float64(max(first, next))
		if sum != least && sum != most {
			t.Errorf("%v occurrences, want %v or %v", sum, least, most)
		}
	})
}
