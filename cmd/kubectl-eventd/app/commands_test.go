package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
)

func TestCommandsPrintTablesLikeKubectl(t *testing.T) {
	c := newCLI(t, everything())
	for _, test := range []struct{ line, query, want string }{
		{"status", "", `
Leader:        eventd-0_a, since 20m, 3 handovers
Replica:       eventd-0_a, leader, v1.2.3, started 20m ago
Follower:      eventd-1_b, standby, not ready (no token), does not hold what is pending
Follower:      eventd-2_c, standby, silent for 20m
History:       12 versions of the last <unknown> in 1.9 MiB of 64.0 MiB, connected

STATION     HEALTHY   QUEUE    CAPACITY   OLDEST   MESSAGE
sink        false     17       <none>     2.5s     namespace team-a hangs
observer    true      512 B    64.0 MiB   <none>   <none>
apiserver   true      <none>   <none>     <none>   <none>

RECEIVER   STATE      LAG    PENDING   LAST ERROR
loki       Retrying   3.0s   9         20m ago: 503
file       Waiting    0.0s   0         <none>

KIND    RULE    DOES            MATCHED   PER SECOND   FAILURES
route   quiet   drop to loki    7         <none>       2

STATION   FIGURE                                    VALUE     PER SECOND
sink      eventd_writes_total{b="c",code="200"}   1234567   12.3
`},
		{"top -A", "by=object&limit=20", `
NAMESPACE   OBJECT      OCCURRENCES   MAX ERROR   WRITES   SAVED
default     Pod/web-0   90            2           5        85
`},
		{"top --by namespaces -A", "by=namespace&limit=20", ""},
		{"top -o wide --since 5m -n team-a", "by=object&limit=20&namespace=team-a&since=5m", `
OBJECT      OCCURRENCES   MAX ERROR   WRITES   SAVED
Pod/web-0   90            2           5        85
`},
		{"timeline po/web-0 --type Warning", "group=core&kind=Pod&limit=500&name=web-0&namespace=default&type=Warning", `
LAST SEEN   TYPE      REASON    OBJECT      COUNT   MESSAGE
20m         Warning   BackOff   Pod/web-0   4       restarting
`},
		{"timeline -A -o wide --no-headers --all-versions --limit 7", "limit=7&versions=all", `
default   20m   Warning   BackOff   Pod/web-0   4     restarting   40m   kubelet   node-1   web-0.17   71
`},
		{"timeline -A", "limit=500", `
NAMESPACE   LAST SEEN   TYPE      REASON    OBJECT      COUNT   MESSAGE
default     20m         Warning   BackOff   Pod/web-0   4       restarting
`},
		{"why pods web-0", "group=core&kind=Pod&name=web-0&namespace=default", `
AGE               STEP                                      COUNT   TYPE      REASON    OBJECT      MESSAGE
20m (since 40m)   Delivered to loki                         3       Warning   BackOff   Pod/web-0   restarting
20m               Recorded                                  3       Warning   BackOff   Pod/web-0   restarting
20m               Would be filtered by the rule noise, a dry run   3       Warning   BackOff   Pod/web-0   restarting
20m               Deferred: its source has spent the budget for this object (budget), for 90m from now   3       Warning   BackOff   Pod/web-0   restarting
20m               Deferred: its series was written a moment ago (spaced)   3       Warning   BackOff   Pod/web-0   restarting
20m               Dropped (forbidden): quota                3       Warning   BackOff   Pod/web-0   restarting
20m               Not delivered to loki, by the route quiet   3       Warning   BackOff   Pod/web-0   restarting

LAST SEEN   TYPE      REASON    OBJECT      COUNT   MESSAGE
20m         Warning   BackOff   Pod/web-0   4       restarting
`},
		{"-A --no-headers -o wide top", "by=object&limit=20", "default Pod/web-0 90 2 5 85\n"},
		{"-n a timeline --for po/web-0 --no-headers --types=warning", "group=core&kind=Pod&limit=500&name=web-0&namespace=a&type=Warning", ""},
		{"timeline --no-headers --types=Warning,Normal", "limit=500&namespace=default", "20m Warning BackOff Pod/web-0 4 restarting\n"},
		{"timeline --types=Normal,normal --no-headers", "limit=500&namespace=default&type=Normal", ""},
		{"why --for=po/web-0 --no-headers", "group=core&kind=Pod&name=web-0&namespace=default", ""},
		{"status -A --no-headers", "", ""},
		{"drops -n team-a", "limit=50&namespace=team-a", `
AGE   STEP                     COUNT   TYPE      REASON    OBJECT      MESSAGE
20m   Filtered by the rule noise   3       Warning   BackOff   Pod/web-0   restarting
`},
		{"timeline no/n1 --no-headers -n kube-system", "group=core&kind=Node&limit=500&name=n1&namespace=kube-system", ""},
		{"why Widget.example.com/w --no-headers -n a", "group=example.com&kind=Widget&name=w&namespace=a", ""},
	} {
		t.Run(test.line, func(t *testing.T) {
			c.t = t
			got := c.mustRun(test.line)
			if query := c.lastQuery(); query != test.query {
				t.Errorf("the query is %q, not %q", query, test.query)
			}
			if want := strings.TrimPrefix(test.want, "\n"); want != "" && columns(got) != columns(want) {
				t.Errorf("got\n%s\nnot\n%s", got, want)
			}
		})
	}
}

// columns returns a text with two spaces between columns.
func columns(text string) string {
	for strings.Contains(text, "   ") {
		text = strings.ReplaceAll(text, "   ", "  ")
	}
	return strings.ReplaceAll(text, "  ", " ")
}

func TestTheNamespaceIsThatOfTheKubeconfigButForWhatIsInNone(t *testing.T) {
	c := newCLI(t, everything())
	file := strings.TrimPrefix(c.flags[0], "--kubeconfig=")
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = "team-a"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"why po/web-0":    "group=core&kind=Pod&name=web-0&namespace=team-a",
		"why node/n1":     "group=core&kind=Node&name=n1&namespace=default",
		"why node/n1 -A":  "group=core&kind=Node&name=n1",
		"why po/w -n b":   "group=core&kind=Pod&name=w&namespace=b",
		"top --limit=7":   "by=object&limit=7&namespace=team-a",
		"drops --limit 7": "limit=7&namespace=team-a",
	} {
		c.mustRun(line)
		if got := c.lastQuery(); got != want {
			t.Errorf("%s: the query is %q, not %q", line, got, want)
		}
	}
}

func TestFormatsHaveWhatEventdHasSent(t *testing.T) {
	answers := everything()
	c := newCLI(t, answers)
	for _, line := range []string{"status", "top", "timeline", "why po/web-0", "drops"} {
		resource, _, _ := strings.Cut(line, " ")
		sent, err := json.Marshal(answers[resource])
		if err != nil {
			t.Fatal(err)
		}
		for format, decode := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
		} {
			var got, want map[string]any
			if err := decode([]byte(c.mustRun(line+" -o "+format)), &got); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if err := json.Unmarshal(sent, &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s -o %s: got\n%v\nnot\n%v", line, format, got, want)
			}
		}
	}
}

func TestNothingFoundIsNoError(t *testing.T) {
	c := newCLI(t, servertest.Answers{
		"timeline": v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), KnownSince: ago(20)},
		"why":      v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), KnownSince: ago(20), Leader: "eventd-0_a"},
		"drops":    v1alpha1.DropList{TypeMeta: typeMeta("DropList"), KnownSince: ago(20), Leader: "eventd-0_a"},
		"top":      v1alpha1.Top{TypeMeta: typeMeta("Top"), By: "object"},
	})
	for line, want := range map[string]string{
		"timeline -n a":                  "No Events found in a namespace.\neventd has the last 20m.\n",
		"why po/eventd-0 -n kube-system": "No reports about Pod/eventd-0 found in kube-system namespace.\nDoes its reporter use eventd? What it writes to the apiserver itself is only in the timeline.\nThe leader eventd-0_a remembers the last 20m.\n",
		"drops -A":                       "No drops found.\nThe leader eventd-0_a remembers the last 20m.\n",
		"top":                            "No reports found in default namespace.\n",
		"top -A":                         "No reports found.\n",
	} {
		if out, errOut, code := c.run(strings.Fields(line)...); out != "" || errOut != want || code != 0 {
			t.Errorf("%s: got %q, %q, exit code %d; want %q", line, out, errOut, code, want)
		}
	}
}

func TestErrorsAreThoseOfKubectl(t *testing.T) {
	refuse := func(code int, reason metav1.StatusReason, message string) http.Handler {
		return servertest.Refuse(code, reason, message)
	}
	for _, test := range []struct {
		handler http.Handler
		line    string
		want    string
		advice  string // the beginning of a second line
	}{
		{refuse(403, metav1.StatusReasonForbidden, "events is forbidden: \x1b[2J"), "drops -A", "Error from server (Forbidden): events is forbidden: ^[[2J\n", "You need the right to list Events in all namespaces. With that right in one, name it: -n"},
		{refuse(401, metav1.StatusReasonUnauthorized, "Unauthorized"), "drops", "error: You must be logged in to the server (Unauthorized)\n", ""},
		{refuse(400, metav1.StatusReasonBadRequest, "bad"), "tail --match x", "Error from server (BadRequest): bad\n", ""},
		{servertest.Answers{}, "timeline", "error: nothing observes here: there is no Lease kube-system/eventd-observe of eventd", "Install deploy/observe: https://"},
		{servertest.Answers{}, "drops", "error: this eventd does not serve drops: it is older, or runs with --trail-bytes=0\n", ""},
		{servertest.Answers{}, "top", "error: this eventd does not serve top: it is older, or runs with --trail-bytes=0\n", ""},
		{everything(), "why web-0", "error: name an object as KIND/NAME, such as pod/web-0, not \"web-0\"\n", ""},
		{everything(), "why", "error: name an object as KIND/NAME, such as pod/web-0\n", ""},
		{everything(), "tail po web-0 web-1", "error: name an object as KIND/NAME, such as pod/web-0, not \"po web-0 web-1\"\n", ""},
		{everything(), "timeline --owned", "error: --owned needs an object: KIND/NAME\n", ""},
		{everything(), "top --by user", "error: --by must be one of [\"object\" \"reason\" \"namespace\" \"reporter\"], not \"user\"\n", ""},
		{everything(), "top --by objectss", "error: --by must be one of [\"object\" \"reason\" \"namespace\" \"reporter\"], not \"objectss\"\n", ""},
		{everything(), "status -o name", "error: unable to match a printer suitable for the output format \"name\", allowed formats are: json,wide,yaml\n", ""},
		{everything(), "status --as jane", "error: --as, --as-group", ""},
		{everything(), "status --connect tunnel", "error: --connect must be one of", ""},
		{everything(), "status --connect apiserver --certificate-authority-eventd ca.crt", "error: --certificate-authority-eventd is not for --connect=apiserver", ""},
		{everything(), "status --connect apiserver", "error: the cluster does not serve status: the aggregated API of eventd is not installed, or eventd is older\n", ""},
		{everything(), "timeline --connect apiserver", "error: the cluster does not serve timeline: the aggregated API of eventd is not installed, or eventd is older, or runs with --history-bytes=0\n", ""},
		{everything(), "status --eventd-server-name a", "error: --eventd-server-name needs --certificate-authority-eventd", ""},
		{everything(), "status --lease-name other", "error: there is no Lease kube-system/other of eventd", "Install eventd: https://"},
		{refuse(403, metav1.StatusReasonForbidden, "no"), "status", "Error from server (Forbidden): no\n", "It needs the right to list Events in all namespaces. With"},
		{refuse(403, metav1.StatusReasonForbidden, "no"), "timeline -n a", "Error from server (Forbidden): no\n", "You need the rights to list and watch Events in a, as"},
		{refuse(403, metav1.StatusReasonForbidden, "no"), "tail -n a", "Error from server (Forbidden): no\n", "You need the rights to list and watch Events in a, as"},
		{everything(), "timeline --type Warnin", "error: valid --types are Normal or Warning, not \"Warnin\"\n", ""},
		{everything(), "tail --types Normal,warn", "error: valid --types are Normal or Warning, not \"warn\"\n", ""},
		{everything(), "timeline --for pod", "error: name an object as KIND/NAME, such as pod/web-0, not \"pod\"\n", ""},
		{everything(), "why po/web-0 --for po/web-0", "error: name the object once: as KIND/NAME or by --for\n", ""},
		{everything(), "timeline po/web-0 --watch --owned", "error: --watch is not possible with --owned or --until\n", ""},
		{everything(), "-o name page", "error: unable to match a printer", ""},
		{everything(), "page -o json", "error: a page has no output format\n", ""},
		{everything(), "nonsense", "error: unknown command", ""},
	} {
		c := newCLI(t, test.handler)
		out, errOut, code := c.run(strings.Fields(test.line)...)
		first, second, _ := strings.Cut(errOut, "\n")
		if out != "" || code != 1 || !strings.HasPrefix(first+"\n", test.want) || !strings.HasPrefix(second, test.advice) || (second == "") != (test.advice == "") || strings.Count(second, "\n") > 1 {
			t.Errorf("%s: got %q, %q, exit code %d; want %q, %q", test.line, out, errOut, code, test.want, test.advice)
		}
		if strings.Contains(test.line, "--as") && len(c.eventd.Requests()) != 0 {
			t.Errorf("%s: a request was sent", test.line)
		}
	}
}

// Those of a Node are in default, whatever the namespace of the kubeconfig is.
func TestAdviceNamesTheNamespaceThatWasAsked(t *testing.T) {
	c := newCLI(t, servertest.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))
	file := strings.TrimPrefix(c.flags[0], "--kubeconfig=")
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = "a"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{"timeline node/n1": "default", "why node/n1": "default", "tail": "a"} {
		if _, errOut, _ := c.run(strings.Fields(line)...); !strings.Contains(errOut, "list and watch Events in "+want+", as") {
			t.Errorf("%s: got %q, want %s", line, errOut, want)
		}
	}
}

// Without a Lease to read, and in the name of another user.
func TestCommandsAreTheSameByTheAggregatedAPI(t *testing.T) {
	answers := everything()
	c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/tail") {
			item := event("a/71", "restarting")
			servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Event: &item})
			servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "over"))
			return
		}
		answers.ServeHTTP(w, req)
	}))
	lines := []string{"status", "top -A", "timeline po/web-0", "why po/web-0", "drops", "tail"}
	directly := make(map[string]string)
	for _, line := range lines {
		out, errOut, code := c.run(strings.Fields(line)...)
		directly[line] = fmt.Sprint(out, errOut, code)
	}
	c.cluster.Announce(":", "")
	c.cluster.Aggregate(v1alpha1.GroupName, c.eventd)
	for _, line := range lines {
		out, errOut, code := c.run(append(strings.Fields(line), "--connect=apiserver", "--as=jane")...)
		if got := fmt.Sprint(out, errOut, code); got != directly[line] || out == "" {
			t.Errorf("%s: got %q, directly %q", line, got, directly[line])
		}
		requests := c.eventd.Requests()
		if user := requests[len(requests)-1].Header.Get("Impersonate-User"); user != "jane" {
			t.Errorf("%s: asked as %q", line, user)
		}
	}
}

// Whatever a client has put into an Event, no command writes it to the terminal as it is.
func TestHostileTextsAreEscaped(t *testing.T) {
	const hostile = "\x1b]0;owned\x07\r\n\t\x1b[2J\u009b31m\u202e\u200b\U000e0041"
	poisoned := func(s string) string { return s + hostile }
	object := v1alpha1.ObjectReference{Kind: poisoned("Pod"), Namespace: poisoned("ns"), Name: poisoned("web"), FieldPath: poisoned("spec")}
	item := event("a/71", poisoned("message"))
	item.Regarding, item.Reason, item.Type, item.Name = object, poisoned("reason"), poisoned("type"), poisoned("name")
	item.Reporter, item.Instance, item.Namespace = poisoned("reporter"), poisoned("instance"), poisoned("ns")
	bad := step(poisoned("action"), func(s *v1alpha1.Step) {
		s.Regarding, s.Reason, s.Type, s.Event, s.Message = object, item.Reason, item.Type, item.Name, item.Message
		s.Reporter, s.User, s.Namespace, s.Cause, s.Detail = item.Reporter, poisoned("user"), item.Namespace, poisoned("cause"), poisoned("detail")
	})
	answers := everything()
	answers["timeline"] = v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), Items: []v1alpha1.TimelineItem{item}}
	answers["why"] = v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Steps: []v1alpha1.Step{bad}, Events: []v1alpha1.TimelineItem{item}}
	answers["drops"] = v1alpha1.DropList{TypeMeta: typeMeta("DropList"), Items: []v1alpha1.Step{bad}}
	answers["top"] = v1alpha1.Top{TypeMeta: typeMeta("Top"), By: "object", Items: []v1alpha1.TopItem{{Object: &object, Occurrences: 1}}}
	status := answers["status"].(v1alpha1.PipelineStatus)
	status.Apiserver.Message, status.Receivers[0].LastError = hostile, hostile
	answers["status"] = status
	tail := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/tail") {
			servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Event: &item, Step: &bad})
			servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, hostile))
			return
		}
		answers.ServeHTTP(w, req)
	})
	c := newCLI(t, tail)
	for _, line := range []string{"status", "top", "timeline", "why po/web", "drops", "tail"} {
		for _, format := range []string{"", "wide", "json", "yaml"} {
			out, errOut, _ := c.run(append(strings.Fields(line), "--output="+format)...)
			if out == "" {
				t.Errorf("%s -o %s prints nothing: %s", line, format, errOut)
			}
			for _, r := range out + errOut {
				escaping := r != '\n' && !unicode.IsGraphic(r)
				if escaping {
					t.Errorf("%s -o %s prints %q in %q", line, format, r, out+errOut)
					break
				}
			}
		}
	}
}

// As kubectl describe: the message of the kubelet may be the same for all containers.
func TestMessagesNameTheirContainer(t *testing.T) {
	item, created := event("a/71", "Container created"), step(v1alpha1.ActionFiltered, nil)
	item.Regarding.FieldPath = "spec.containers{app}"
	created.Regarding, created.Message = item.Regarding, item.Message
	answers := servertest.Answers{
		"timeline": v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), Items: []v1alpha1.TimelineItem{item}},
		"why":      v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Steps: []v1alpha1.Step{created}, Events: []v1alpha1.TimelineItem{item}},
		"drops":    v1alpha1.DropList{TypeMeta: typeMeta("DropList"), Items: []v1alpha1.Step{created}},
	}
	c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/tail") {
			servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Event: &item, Step: &created})
			servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "over"))
			return
		}
		answers.ServeHTTP(w, req)
	}))
	for line, want := range map[string][]string{
		"timeline":     {" 4 spec.containers{app}: Container created"},
		"drops":        {" 3 Warning BackOff Pod/web-0 spec.containers{app}: Container created"},
		"why po/web-0": {" 3 Warning BackOff Pod/web-0 spec.containers{app}: Container created", " 4 spec.containers{app}: Container created"},
		"tail":         {" 4 spec.containers{app}: Container created", " 3 [Filtered by a rule] spec.containers{app}: Container created"},
	} {
		out, _, _ := c.run(strings.Fields(line)...)
		for _, text := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
				t.Errorf("%s does not say %q:\n%s", line, text, out)
			}
		}
		if out, _, _ := c.run(append(strings.Fields(line), "-o", "json")...); !strings.Contains(strings.ReplaceAll(out, " ", ""), `"fieldPath":"spec.containers{app}"`) {
			t.Errorf("%s -o json does not have the field:\n%s", line, out)
		}
	}
}

func TestDryRunOfABudgetIsNoFilter(t *testing.T) {
	c := newCLI(t, servertest.Answers{"why": v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Object: web, KnownSince: ago(30), Leader: "eventd-0_a", Steps: []v1alpha1.Step{
		step(v1alpha1.ActionWouldBe, func(s *v1alpha1.Step) { s.Rule, s.Cause = "noise", v1alpha1.CauseWouldBudget }),
	}}})
	if out := c.mustRun("why pod/web-0"); !strings.Contains(out, "Would have the budget of the rule noise, a dry run") {
		t.Error(out)
	}
}

// Receivers have the age of a failure, rules the number of them.
func TestFailuresOfReceiversAndRulesAreNamedApart(t *testing.T) {
	out := columns(newCLI(t, everything()).mustRun("status -o wide"))
	for _, want := range []string{"LAST ERROR CURSOR\n", " 20m ago: 503 8\n", "PER SECOND FAILURES MATCH\n"} {
		if !strings.Contains(strings.ReplaceAll(out, "  ", " "), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

// A standby has stations too, which do nothing.
func TestWithoutALeaderTheWayInIsUnknown(t *testing.T) {
	out := columns(newCLI(t, servertest.Answers{"status": v1alpha1.PipelineStatus{
		TypeMeta: typeMeta("PipelineStatus"), Replica: v1alpha1.Replica{Identity: "eventd-1_b", Role: "standby"},
		Stations:  []v1alpha1.Station{{Name: "intake", Message: "3 requests wait for a leader"}, {Name: "sink", Healthy: true}, {Name: "observer", Healthy: true}},
		Apiserver: v1alpha1.Station{Name: "apiserver", Healthy: true},
	}}).mustRun("status"))
	for _, want := range []string{"Leader: none\n", "intake false ", "sink <unknown> ", "observer true ", "apiserver <unknown> "} {
		if !strings.Contains(strings.ReplaceAll(out, "  ", " "), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

func TestOneIsSingular(t *testing.T) {
	out := newCLI(t, servertest.Answers{"status": v1alpha1.PipelineStatus{
		TypeMeta: typeMeta("PipelineStatus"),
		Leader:   &v1alpha1.Leader{Identity: "eventd-0_a", Since: ago(20), Handovers: 1},
		History:  &v1alpha1.HistoryStatus{Versions: 1},
	}}).mustRun("status")
	for _, want := range []string{"since 20m, 1 handover\n", " 1 version of the last "} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}
