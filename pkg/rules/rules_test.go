package rules

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// expressions read every field, and use what the environment has.
var expressions = []string{
	`event.type == "Warning" && event.metadata.namespace.startsWith("prod-")`,
	`event.involvedObject.kind in ["Pod", "Node"] && event.reason in ["BackOff", "OOMKilling"]`,
	`event.message.matches("(?i)^(back-off|failed) .* (image|container|pod) .*")`,
	`event.message.lowerAscii().contains("probe failed") || event.message.size() > 100`,
	`event.message.split(" ").exists(w, w == "OOM")`,
	`event.message.find("[0-9]+") != "" && event.message.upperAscii() == event.message`,
	`"team" in event.metadata.labels && event.metadata.labels["team"] == "a"`,
	`event.metadata.labels[?"team"].orValue("") == "a"`,
	`event.metadata.annotations.exists(k, k.startsWith("kyverno.io/"))`,
	`event.metadata.annotations.exists(k, event.metadata.annotations[k].contains("secret"))`,
	`event.metadata.annotations.all(k, v, k != v) && event.metadata.labels == event.metadata.annotations`,
	`event.lastTimestamp - event.firstTimestamp > duration("1h") && event.lastTimestamp.getFullYear() > 2000`,
	`string(event.lastTimestamp) != "" && event.metadata.creationTimestamp < timestamp("2030-01-01T00:00:00Z")`,
	`event.count > 10 && quantity("5").isLessThan(quantity("6").add(event.count)) && isQuantity("1Gi")`,
	`has(event.related) && has(event.message) && event.related == event.involvedObject && event == event`,
	`event.related.name + event.related.kind + event.related.namespace + event.related.uid + event.related.apiVersion == event.related.fieldPath`,
	`"%s %d".format([event.metadata.annotations, event.count]).contains("a")`,
	`dyn(event).message == "a" || string(dyn(event)) == "a"`,
	`event.metadata.name + event.metadata.uid + event.action + event.reportingComponent == event.reportingInstance`,
	`event.message.replace("a", "bb").substring(1, 3).charAt(0) == url(event.message).getHost()`,
	`event.message.indexOf("container ") > 0 && event.message.lastIndexOf(event.involvedObject.name) > 5`,
	`isIP(event.message) || ip(event.message).isLoopback() || isSemver(event.message)`,
	`[event][0].metadata.name == "" && optional.of(event).value().involvedObject.kind == "Pod"`,
}

// compileAll compiles each expression as a route to its own receiver, which continues.
func compileAll(t testing.TB, expressions []string) *Set {
	t.Helper()
	config := new(v1alpha1.EventdConfiguration)
	for i, expression := range expressions {
		name := fmt.Sprint("r", i)
		config.Receivers = append(config.Receivers, v1alpha1.Receiver{Name: name})
		config.Routes = append(config.Routes, v1alpha1.Route{Name: name, Match: expression, Receivers: []string{name}, Continue: true})
	}
	return mustCompile(t, config)
}

func mustCompile(t testing.TB, config *v1alpha1.EventdConfiguration) *Set {
	t.Helper()
	set, err := Compile(config)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// wantConsistent checks that Deliver decides as Route does, and that neither changes the Event.
func wantConsistent(t testing.TB, set *Set, event *corev1.Event) {
	t.Helper()
	before := event.DeepCopy()
	for _, d := range set.Route(event).Receivers {
		if deliver, route := set.For(d.Receiver).Deliver(event); deliver != d.Deliver || route != d.Route {
			t.Errorf("%s: Deliver is %t by %q, Route is %t by %q", d.Receiver, deliver, route, d.Deliver, d.Route)
		}
	}
	if diff := cmp.Diff(before, event); diff != "" {
		t.Errorf("the Event was changed: %s", diff)
	}
}

// result evaluates one expression.
func result(t *testing.T, expression string, event *corev1.Event) Evaluation {
	t.Helper()
	return compileAll(t, []string{expression}).Route(event).Routes[0]
}

func TestFieldsAreThoseOfTheEvent(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	full := corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web.1", Namespace: "shop", UID: "u1", Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{"note": "b"}, CreationTimestamp: metav1.NewTime(at(1))},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web", UID: "u2", APIVersion: "v1", FieldPath: "spec"},
		Related:        &corev1.ObjectReference{Kind: "Node", Namespace: "n", Name: "node-1", UID: "u3", APIVersion: "v2", FieldPath: "status"},
		Reason:         "BackOff", Message: "Back-off", Type: "Warning", Action: "Restart", Count: 4,
		ReportingController: "kubelet", ReportingInstance: "node-1",
		FirstTimestamp: metav1.NewTime(at(2)), LastTimestamp: metav1.NewTime(at(3)),
	}
	series := full
	series.Series = &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(at(4))}
	classic := corev1.Event{Source: corev1.EventSource{Component: "scheduler", Host: "node-2"}}
	modern := corev1.Event{EventTime: metav1.NewMicroTime(at(5))}
	for _, test := range []struct {
		event      *corev1.Event
		expression string
	}{
		{&full, `event.metadata.name == "web.1" && event.metadata.namespace == "shop" && event.metadata.uid == "u1"`},
		{&full, `event.metadata.labels == {"team": "a"} && event.metadata.annotations == {"note": "b"}`},
		{&full, `event.metadata.creationTimestamp == timestamp("2026-01-01T01:00:00Z")`},
		{&full, `event.involvedObject.kind == "Pod" && event.involvedObject.namespace == "shop" && event.involvedObject.name == "web"`},
		{&full, `event.involvedObject.uid == "u2" && event.involvedObject.apiVersion == "v1" && event.involvedObject.fieldPath == "spec"`},
		{&full, `event.related.kind == "Node" && event.related.namespace == "n" && event.related.name == "node-1"`},
		{&full, `event.related.uid == "u3" && event.related.apiVersion == "v2" && event.related.fieldPath == "status"`},
		{&full, `event.reason == "BackOff" && event.message == "Back-off" && event.type == "Warning" && event.action == "Restart"`},
		{&full, `event.count == 4 && event.reportingComponent == "kubelet" && event.reportingInstance == "node-1"`},
		{&full, `event.firstTimestamp == timestamp("2026-01-01T02:00:00Z") && event.lastTimestamp == timestamp("2026-01-01T03:00:00Z")`},
		{&full, `has(event.related) && event.related != event.involvedObject`},
		{&series, `event.count == 9 && event.lastTimestamp == timestamp("2026-01-01T04:00:00Z")`},
		{&classic, `event.count == 1 && event.reportingComponent == "scheduler" && event.reportingInstance == "node-2"`},
		{&classic, `event.message == "" && event.related.name == "" && event.metadata.labels.size() == 0 && event.firstTimestamp < timestamp("1970-01-01T00:00:00Z")`},
		{&classic, `!has(event.related) && !has(event.message) && !has(event.metadata.labels) && event.related == event.involvedObject`},
		{&modern, `event.firstTimestamp == timestamp("2026-01-01T05:00:00Z") && event.lastTimestamp == event.firstTimestamp`},
	} {
		if e := result(t, test.expression, test.event); e.Result != Match {
			t.Errorf("%s: %s %v", test.expression, e.Result, e.Err)
		}
	}
}

func TestWrongExpressionIsNamed(t *testing.T) {
	for _, test := range []struct{ expression, want string }{
		{`event.foo == 1`, "routes[0].match: Invalid value: 1:6: undefined field 'foo'"},
		{"event.type == \"a\" &&\n  event.count == \"b\"", "2:15: found no matching overload"},
		{`event.type ==`, "1:14: Syntax error"},
		{`other == 1`, "1:1: undeclared reference to 'other'"},
		{`event.type`, "must be a bool, is string"},
		{`dyn(event.type)`, "must be a bool, is dyn"},
		{`event.message.matches("(")`, "1:22: error parsing regexp"},
		{strings.Repeat("(", 1000), "recursion"},
		{`"` + strings.Repeat("a", MaxExpression) + `" == ""`, "Too long: may not be more than 10240 bytes"},
		// Over budget.
		{`event.metadata.annotations.exists(a, event.metadata.annotations.exists(b, a == b))`, "may cost 156164 units for one Event, and 10000 is the limit"},
		{`event.message.replace("", event.message).contains("abcdefghijklmnopqrstuvwxyz")`, "is the limit"},
		{`event.message.replace(event.reason, event.metadata.annotations["a"]).size() == 1`, "is the limit"},
		{`event.message.indexOf(event.metadata.annotations["a"]) > 0`, "is the limit"},
		{`event.message.lastIndexOf(event.involvedObject.fieldPath, 5) > 0`, "is the limit"},
		{`event.message.split("").join(event.metadata.annotations["a"]).size() == 1`, "is the limit"},
		{`lists.range(1000000000).size() == 1`, "is the limit"},
		{`event.message.matches("` + strings.Repeat("a", 1000) + `")`, "is the limit"},
		{`event.message.matches(".{600}")`, "is the limit"},
		{`["a"].exists(x, x.find("(.{100}){6}") == "b")`, "is the limit"},
		{`event.message.matches(event.type)`, "must be a string in the expression"},
		{`.matches(event.message, event.type)`, "must be a string in the expression"},
		{`matches(event.message, "a" + event.type)`, "must be a string in the expression"},
		{`event.message.findAll(event.type, 2).size() > 1`, "must be a string in the expression"},
		// "1e999999999" takes minutes, and gigabytes.
		{`quantity(event.message).isGreaterThan(quantity("1Gi"))`, "a quantity must be a string in the expression"},
		{`quantity("1e-999") == quantity("1")`, "two digits in its exponent"},
		{`isQuantity("1E+999999999")`, "two digits in its exponent"},
		{`isQuantity("` + strings.Repeat("1", 65) + `")`, "a quantity may have 64 characters"},
		{`event.metadata.annotations.exists(k, v, isQuantity(v))`, "a quantity must be a string in the expression"},
	} {
		config := &v1alpha1.EventdConfiguration{Routes: []v1alpha1.Route{{Name: "a", Match: test.expression}}}
		_, err := Compile(config)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80s: %v, want %s", test.expression, err, test.want)
		}
	}
}

// What a tenant writes into an Event changes what becomes of that one only.
func TestLargeEventIsOverBudgetAndTheRouteStaysInForce(t *testing.T) {
	const word = `event.message.matches("^(back-off|failed) .* (image|container)$")`
	large := &corev1.Event{Message: "failed " + strings.Repeat("x ", 700_000) + "image"}
	labels := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for i := range 20_000 {
		labels.Labels[fmt.Sprint("key-", i)] = "value"
	}
	const each = `event.metadata.labels.exists(k, event.metadata.labels[k] == "none")`
	for _, test := range []struct {
		expression string
		event      *corev1.Event
	}{{word, large}, {each, labels}} {
		set := compileAll(t, []string{test.expression, `true`})
		d := set.Route(test.event)
		if d.Routes[0].Result != OverBudget || d.Routes[0].Err == nil || d.Receivers[0].Deliver || !d.Receivers[1].Deliver {
			t.Errorf("%s: %+v", test.expression, d)
		}
		wantConsistent(t, set, test.event)
		usual := &corev1.Event{Message: "failed to pull the image", ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "none"}}}
		if d := set.Route(usual); !d.Receivers[0].Deliver {
			t.Errorf("%s does not match any longer: %+v", test.expression, d)
		}
	}
	// A kubelet's message has up to 10 KiB.
	if e := result(t, `event.message.contains("probe failed")`, &corev1.Event{Message: strings.Repeat("x", 10<<10-12) + "probe failed"}); e.Result != Match {
		t.Errorf("%+v", e)
	}
	if e := result(t, `event.type.size() == 1022`, &corev1.Event{Type: strings.Repeat("x", 1022) + "€"}); e.Result != Match {
		t.Errorf("%+v", e)
	}
	if e := result(t, `event.message.size() == 16382 && event.metadata.labels["a"].size() == 16384`, &corev1.Event{
		Message: strings.Repeat("€", 1)[1:] + strings.Repeat("x", 16380) + "€€", ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": strings.Repeat("x", 20_000)}}}); e.Result != Match {
		t.Errorf("%+v", e)
	}
}

func TestFailedEvaluationDoesNotMatch(t *testing.T) {
	set := compileAll(t, []string{`event.metadata.labels["team"] == "a"`, `semver(event.message).major() == 1`, `1 / (event.count - 1) == 1`, `dyn(event) == 1 || dyn(event).foo`})
	for _, e := range set.Route(&corev1.Event{}).Routes {
		if e.Result != Failed || e.Err == nil {
			t.Errorf("%+v", e)
		}
	}
}

func TestRoutesDecideInOrder(t *testing.T) {
	route := func(name, match string, continues bool, receivers ...string) v1alpha1.Route {
		return v1alpha1.Route{Name: name, Match: match, Receivers: receivers, Continue: continues}
	}
	const warning, pod, failing = `event.type == "Warning"`, `event.involvedObject.kind == "Pod"`, `event.metadata.labels["a"] == ""`
	event := &corev1.Event{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: "Pod"}}
	for name, test := range map[string]struct {
		routes []v1alpha1.Route
		want   string // results of routes, then receiver a and b: the route, with + if it gets the Event
	}{
		"none: all get everything":    {nil, "|+ +"},
		"first match ends":            {[]v1alpha1.Route{route("w", warning, false, "a"), route("p", pod, false, "b")}, "match not_evaluated|+w w"},
		"continue goes on":            {[]v1alpha1.Route{route("w", warning, true, "a"), route("p", pod, false, "b")}, "match match|+w +p"},
		"the first one that delivers": {[]v1alpha1.Route{route("w", warning, true, "a"), route("p", pod, false, "a", "b")}, "match match|+w +p"},
		"no receivers: dropped":       {[]v1alpha1.Route{route("drop", pod, false), route("w", "", false, "a", "b")}, "match not_evaluated|drop drop"},
		"nothing matches":             {[]v1alpha1.Route{route("n", "!("+warning+")", false, "a")}, "no_match| "},
		"continue at the end":         {[]v1alpha1.Route{route("w", warning, true, "a")}, "match|+w "},
		"an error does not match":     {[]v1alpha1.Route{route("f", failing, false), route("w", "", false, "a")}, "error match|+w w"},
	} {
		set := mustCompile(t, &v1alpha1.EventdConfiguration{Receivers: []v1alpha1.Receiver{{Name: "a"}, {Name: "b"}}, Routes: test.routes})
		d := set.Route(event)
		var results, receivers []string
		for _, e := range d.Routes {
			results = append(results, string(e.Result))
		}
		for _, r := range d.Receivers {
			receivers = append(receivers, map[bool]string{true: "+"}[r.Deliver]+r.Route)
		}
		if got := strings.Join(results, " ") + "|" + strings.Join(receivers, " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		wantConsistent(t, set, event)
		if deliver, _ := set.For("unknown").Deliver(event); deliver {
			t.Errorf("%s: an unknown receiver gets the Event", name)
		}
	}
}

func TestManyRouteAtOnce(t *testing.T) {
	set := compileAll(t, expressions)
	event := &corev1.Event{Type: "Warning", Message: "OOM probe failed", ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}}}
	want := set.Route(event)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				for i, d := range want.Receivers {
					if deliver, _ := set.For(d.Receiver).Deliver(event); deliver != want.Receivers[i].Deliver {
						t.Errorf("%s: %t", d.Receiver, deliver)
					}
				}
			}
		})
	}
	group.Wait()
}
