package query_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// queries has one of each resource, about a namespace if it can be.
var queries = map[string]string{
	"status": "status", "top": "top?namespace=shop", "timeline": "timeline?namespace=shop", "why": "why?namespace=shop&kind=Pod&name=web",
	"drops": "drops?namespace=shop", "tail": "tail?watch=true&namespace=shop",
}

func TestEachQueryNeedsTheRightsOnItsEvents(t *testing.T) {
	for resource, path := range queries {
		t.Run(resource, func(t *testing.T) {
			s := newScene(t)
			s.happens("shop", "web", "secret")
			denied := "shop"
			if resource == "status" {
				denied = ""
			}
			s.deny(denied)
			a := s.Do(t, http.MethodGet, root+path, nil)
			a.Want(t, http.StatusForbidden, metav1.StatusReasonForbidden)
			if strings.Contains(string(a.Body), "secret") || len(s.reviewed()) != 1 {
				t.Errorf("the answer is %s", a.Body)
			}
			// Without the namespace, a query is over all of them.
			all, _ := url.Parse(path)
			values := all.Query()
			values.Del("namespace")
			s.deny("")
			s.Do(t, http.MethodGet, root+all.Path+"?"+values.Encode(), nil).Want(t, http.StatusForbidden, metav1.StatusReasonForbidden)
			if got := s.reviewed(); !slices.Equal(got, []string{"list "}) {
				t.Errorf("reviewed are %q", got)
			}
		})
	}
}

func TestOneForbiddenNamespaceForbidsTheQuery(t *testing.T) {
	s := newScene(t)
	s.deny("other")
	a := s.Do(t, http.MethodGet, root+"timeline?namespace=shop&namespace=other&namespace=shop", nil)
	a.Want(t, http.StatusForbidden, metav1.StatusReasonForbidden)
	if got := s.reviewed(); !slices.Equal(got, []string{"list shop", "list other"}) {
		t.Errorf("reviewed are %q", got)
	}
}

func TestWatchNeedsTheRightToWatch(t *testing.T) {
	s := newScene(t)
	close(s.stopping)
	s.Do(t, http.MethodGet, root+"tail?watch=true&namespace=shop", nil)
	if got := s.reviewed(); len(got) < 2 || !slices.Equal(got[:2], []string{"list shop", "watch shop"}) {
		t.Errorf("reviewed are %q", got)
	}
}

func TestTimelineHasTheNamespacesOfTheQueryAlone(t *testing.T) {
	s := newScene(t)
	for _, namespace := range []string{"shop", "other", "third"} {
		s.happens(namespace, "web", "in "+namespace)
	}
	for path, want := range map[string]int{
		"timeline":                3,
		"timeline?namespace=shop": 1,
		"timeline?namespace=shop&namespace=third":                   2,
		"timeline?namespace=none":                                   0,
		"timeline?kind=Pod&name=web&reason=Failed&reporter=kubelet": 3,
		"timeline?reason=Started":                                   0,
		"timeline?since=1h&until=" + url.QueryEscape(time.Now().Add(-time.Minute).Format(time.RFC3339)): 0,
		"timeline?limit=2": 2,
	} {
		got := get[v1alpha1.Timeline](t, s, path)
		if len(got.Items) != want || got.Kind != "Timeline" || got.APIVersion != "query.eventd.io/v1alpha1" {
			t.Errorf("%s has %d items: %+v", path, len(got.Items), got)
		}
	}
	item := get[v1alpha1.Timeline](t, s, "timeline?namespace=shop").Items[0]
	if item.Message != "in shop" || item.Count != 3 || item.Reporter != "kubelet" || item.Instance != "node-1" || item.Regarding.Name != "web" ||
		item.ID == "" || item.ResourceVersion != "1" || item.Last.IsZero() || item.Observed.IsZero() {
		t.Errorf("the item is %+v", item)
	}
}

func TestHostileTextsAreDataAndBounded(t *testing.T) {
	s := newScene(t)
	const text = "</script><script>alert(1)</script>\x1b]0;owned\x07\u202e\xff\"\n"
	for range 400 {
		s.happens("shop", "web", text+strings.Repeat("\x01", 20<<10))
	}
	a := s.Do(t, http.MethodGet, root+"timeline?namespace=shop&limit=5000", nil)
	if a.Code != http.StatusOK || len(a.Body) > 5<<20 {
		t.Fatalf("answered %d with %d bytes", a.Code, len(a.Body))
	}
	if i := slices.IndexFunc(a.Body[:len(a.Body)-1], func(b byte) bool { return b < ' ' || b == '<' || b > 0x7e && b < 0x80 }); i >= 0 {
		t.Errorf("the answer has the byte %q", a.Body[i])
	}
	var timeline v1alpha1.Timeline
	if err := json.Unmarshal(a.Body, &timeline); err != nil {
		t.Fatal(err)
	}
	n := len(timeline.Items)
	if !timeline.Truncated || n == 0 || n == 400 || timeline.Items[n-1].ResourceVersion != "400" {
		t.Errorf("the answer has %d items, truncated: %v", n, timeline.Truncated)
	}
	if !strings.HasPrefix(timeline.Items[0].Message, "</script><script>alert(1)</script>\x1b]0;owned\x07\u202e") {
		t.Errorf("the message is %.60q", timeline.Items[0].Message)
	}
}

func TestWrongParametersAreRefused(t *testing.T) {
	s := newScene(t)
	many := ""
	for i := range v1alpha1.MaxNamespaces + 1 {
		many += fmt.Sprintf("namespace=n%d&", i)
	}
	for _, path := range []string{
		"timeline?namespaces=shop", "timeline?namespace=", "timeline?namespace=Shop", "timeline?namespace=../x", "timeline?" + many,
		"timeline?limit=0", "timeline?limit=5001", "timeline?limit=x", "timeline?since=-5m", "timeline?since=yesterday",
		"timeline?name=a&name=b", "timeline?name=" + strings.Repeat("x", 2000), "timeline?watch=true", "timeline?versions=some",
		"why?name=web-0&watch=true", "why", "why?kind=Pod", "why?uid=1", "drops?kind=Pod", "drops?uid=1", "top?by=colour", "top?since=2999-01-01T00:00:00Z", "top?until=5m", "status?namespace=shop", "tail", "tail?watch=false",
		"tail?watch=true&include=all", "tail?watch=true&resourceVersion=1%0Aid:2", "tail?watch=true&resourceVersion=" + strings.Repeat("1", 200),
		"tail?watch=true&match=" + strings.Repeat("x", 8<<10), "tail?watch=true&match=event.reason", "tail?watch=true&match=nothing",
		"tail?watch=true&match=" + url.QueryEscape("[1,2,3].all(a,[1,2,3].all(b,[1,2,3].all(c,[1,2,3].all(d,event.message.matches('(a+)+$')))))"),
	} {
		if a := s.Do(t, http.MethodGet, root+path, nil); a.Code != http.StatusBadRequest {
			t.Errorf("%.100s is answered %d: %.300s", path, a.Code, a.Body)
		}
	}
}

// A source that is missing is not served, and not in discovery.
func TestWhatHasNoSourceIsNotServed(t *testing.T) {
	s := newScene(t, func(o *query.Options) { o.History, o.Trail = nil, nil })
	for resource, path := range queries {
		want := http.StatusNotFound
		if resource == "status" {
			want = http.StatusOK
		}
		if a := s.Do(t, http.MethodGet, root+path, nil); a.Code != want {
			t.Errorf("%s is answered %d: %s", resource, a.Code, a.Body)
		}
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(s.Do(t, http.MethodGet, strings.TrimSuffix(root, "/"), nil).Body, &list); err != nil || len(list.APIResources) != 1 {
		t.Errorf("the resources are %+v, %v", list.APIResources, err)
	}
	s = newScene(t, func(o *query.Options) { o.Trail = nil })
	for _, include := range []string{"steps", "events,steps"} {
		a := s.Do(t, http.MethodGet, root+"tail?watch=true&include="+include, nil)
		a.Want(t, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
}

// Of a replica that does not lead, what is the leader's is the leader's answer, and its own history its own.
func TestOnlyTheLeaderAnswersForEventd(t *testing.T) {
	var relayed []string
	s := newScene(t, func(o *query.Options) {
		o.Leading = func() bool { return false }
		o.Status = func() v1alpha1.PipelineStatus {
			return v1alpha1.PipelineStatus{Replica: v1alpha1.Replica{Identity: "b"}}
		}
		o.Leader = func() *v1alpha1.Leader { return &v1alpha1.Leader{Identity: "a"} }
		o.Relay = relayTo(func(req *http.Request) (int, string) {
			relayed = append(relayed, req.URL.RequestURI())
			return http.StatusTeapot, "the leader's"
		})
	})
	for resource, path := range queries {
		if resource == "tail" {
			path += "&include=steps"
		}
		a := s.Do(t, http.MethodGet, root+path, nil)
		switch {
		case resource == "timeline" && a.Code != http.StatusOK, resource != "timeline" && (a.Code != http.StatusTeapot || string(a.Body) != "the leader's"):
			t.Errorf("%s is answered %d: %s", resource, a.Code, a.Body)
		}
	}
	if len(relayed) != len(queries)-1 {
		t.Errorf("relayed are %q", relayed)
	}
	if got := get[v1alpha1.PipelineStatus](t, s, "status?local=true"); got.Replica.Identity != "b" || got.Leader == nil || got.Leader.Identity != "a" {
		t.Errorf("the local status is of %+v, the leader is %+v", got.Replica, got.Leader)
	}
}

// The rest of the status needs the checks of /readyz, which other answers do without.
func TestOnlyStatusReadsTheStatus(t *testing.T) {
	s := newScene(t, func(o *query.Options) {
		o.Identity = "me"
		o.Status = func() v1alpha1.PipelineStatus {
			t.Error("the status is read")
			return v1alpha1.PipelineStatus{}
		}
	})
	if got := get[v1alpha1.Explanation](t, s, "why?name=web"); got.Leader != "me" {
		t.Errorf("the leader of the explanation is %q", got.Leader)
	}
	if got := get[v1alpha1.DropList](t, s, "drops"); got.Leader != "me" {
		t.Errorf("the leader of the drops is %q", got.Leader)
	}
}

// Replicas observe Events at different times: one that has just begun lists what has happened an hour ago. So nothing
// depends on when, or in which order, a version was observed.
func TestTimelineIsOfTheTimesOfEvents(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	microAgo := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(-d)) }
	events := map[string]corev1.Event{
		"old":    {FirstTimestamp: ago(200 * time.Hour), LastTimestamp: ago(100 * time.Hour)},
		"new":    {FirstTimestamp: ago(200 * time.Hour), LastTimestamp: ago(10 * time.Minute)},
		"series": {EventTime: microAgo(30 * time.Hour), Series: &corev1.EventSeries{Count: 3, LastObservedTime: microAgo(20 * time.Minute)}},
		"once":   {EventTime: microAgo(time.Hour)},
		"first":  {FirstTimestamp: ago(20 * time.Hour)},
		"bare":   {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(50 * time.Hour)}},
		"future": {LastTimestamp: ago(-time.Hour)}, // the clock of its reporter is wrong
		"last":   {EventTime: microAgo(-time.Second)},
	}
	for _, order := range [][]string{
		{"old", "bare", "first", "once", "series", "new", "future", "last"},
		{"future", "new", "first", "series", "old", "once", "bare", "last"},
	} {
		s := newScene(t)
		for i, name := range order {
			e := events[name]
			e.Namespace, e.Name, e.UID, e.ResourceVersion = "shop", name, types.UID(name), fmt.Sprint(i+1)
			s.history.Add(observer.Version{Event: &e, Observed: now.Add(time.Duration(i) * time.Second / 7)}) // the last one when it happens
		}
		for asked, want := range map[string]string{
			"":                     "old bare first once series new future last",
			"&since=30m":           "series new future last",
			"&since=30m&until=15m": "series",
			"&until=30m":           "old bare first once",
			"&since=55h&until=10h": "bare first",
			"&limit=2":             "future last",
			"&until=1h&limit=2":    "first once",
			"&versions=all":        "old bare first once series new future last",
		} {
			var got []string
			for _, item := range get[v1alpha1.Timeline](t, s, "timeline?namespace=shop"+asked).Items {
				got = append(got, item.Name)
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("observed as %v: timeline%s is %q, not %q", order, asked, text, want)
			}
		}
	}
}

// Knative and the core API have both a Service, and each may be named web. Of an Event that does not say the group of its
// object, nobody knows of which it is: it is of both.
func TestObjectsOfTwoGroupsAreTwo(t *testing.T) {
	s := newScene(t)
	for i, apiVersion := range []string{"v1", "serving.knative.dev/v1", "serving.knative.dev/v1beta1", ""} {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web.", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(i + 1)},
			InvolvedObject: corev1.ObjectReference{APIVersion: apiVersion, Kind: "Service", Namespace: "shop", Name: "web"},
			Reason:         "Of " + apiVersion, LastTimestamp: metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second)),
		}
		s.history.Add(observer.Version{Event: e, Observed: time.Now()})
		s.trail.Ended(&occurrence.Occurrence{Event: e, User: "jane", Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: "queue_full"})
	}
	for group, want := range map[string][]string{
		"":                           {"Of ", "Of serving.knative.dev/v1", "Of serving.knative.dev/v1beta1", "Of v1"},
		"&group=core":                {"Of ", "Of v1"},
		"&group=serving.knative.dev": {"Of ", "Of serving.knative.dev/v1", "Of serving.knative.dev/v1beta1"},
		"&group=apps":                {"Of "},
	} {
		about := "?namespace=shop&kind=Service&name=web" + group
		why := get[v1alpha1.Explanation](t, s, "why"+about)
		for name, got := range map[string][]string{
			"timeline":      reasons(get[v1alpha1.Timeline](t, s, "timeline"+about).Items),
			"Events of why": reasons(why.Events),
			"why":           reasonsOfSteps(why.Steps),
			"drops":         reasonsOfSteps(get[v1alpha1.DropList](t, s, "drops"+about).Items),
		} {
			if !slices.Equal(got, want) {
				t.Errorf("%s%s is %q, not %q", name, about, got, want)
			}
		}
	}
	counts := map[string]int64{}
	for _, item := range get[v1alpha1.Top](t, s, "top?namespace=shop").Items {
		counts[item.Object.String()+" in "+item.Object.Group] += item.Occurrences
	}
	if want := map[string]int64{"Service/web in core": 1, "Service.serving.knative.dev/web in serving.knative.dev": 2, "Service/web in ": 1}; !maps.Equal(counts, want) {
		t.Errorf("top is %v, not %v", counts, want)
	}
}

// The message of the kubelet may be the same for all containers of a Pod. They are one object of top.
func TestContainersOfAPodAreToldApart(t *testing.T) {
	s := newScene(t)
	want := []string{"spec.containers{app}", "spec.containers{sidecar}"}
	for i, container := range want {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web.", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(i + 1)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", FieldPath: container},
			Reason:         "Created", Message: "Container created", LastTimestamp: metav1.Now(),
		}
		s.history.Add(observer.Version{Event: e, Observed: time.Now()})
		s.trail.Ended(&occurrence.Occurrence{Event: e, User: "jane", Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: "queue_full"})
	}
	why := get[v1alpha1.Explanation](t, s, "why?name=web")
	for name, got := range map[string][]string{
		"timeline":      partsOf(get[v1alpha1.Timeline](t, s, "timeline").Items, func(i v1alpha1.TimelineItem) v1alpha1.ObjectReference { return i.Regarding }),
		"Events of why": partsOf(why.Events, func(i v1alpha1.TimelineItem) v1alpha1.ObjectReference { return i.Regarding }),
		"why":           partsOf(why.Steps, func(s v1alpha1.Step) v1alpha1.ObjectReference { return s.Regarding }),
		"drops":         partsOf(get[v1alpha1.DropList](t, s, "drops").Items, func(s v1alpha1.Step) v1alpha1.ObjectReference { return s.Regarding }),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s is of %q, not %q", name, got, want)
		}
	}
	if items := get[v1alpha1.Top](t, s, "top").Items; len(items) != 1 || items[0].Occurrences != 2 || items[0].Object.FieldPath != "" {
		t.Errorf("top is %+v", items)
	}
}

// partsOf returns the parts of objects that items are about.
func partsOf[T any](items []T, of func(T) v1alpha1.ObjectReference) (out []string) {
	for _, item := range items {
		out = append(out, of(item).FieldPath)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func reasons(items []v1alpha1.TimelineItem) (out []string) {
	for _, item := range items {
		out = append(out, item.Reason)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func reasonsOfSteps(steps []v1alpha1.Step) (out []string) {
	for _, step := range steps {
		out = append(out, step.Reason)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
