package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/servertest"
)

// tailing serves tails: two Events with the cursor before them, of which the second comes again after a
// disconnect; then, that its cursor is no longer kept; then steps, and a bookmark that says how many were lost.
func tailing(w http.ResponseWriter, req *http.Request, connection int32) {
	cursor := req.URL.Query().Get(v1alpha1.ParamResourceVersion)
	send := func(id string) {
		item := event(id, id)
		servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: "70", Event: &item})
	}
	bookmark := func(version string, lost int64) {
		servertest.Frame(w, "BOOKMARK", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: version, Lost: lost})
	}
	switch {
	case connection == 1 && cursor == "":
		bookmark("70", 0)
		send("a/71")
		send("a/72")
		panic(http.ErrAbortHandler)
	case connection == 2 && cursor == "70":
		bookmark("70", 0)
		send("a/72")
		send("a/73")
		bookmark("73", 0)
		servertest.Frame(w, "ERROR", servertest.Failure(http.StatusGone, metav1.StatusReasonExpired, "too old"))
	case connection == 3 && cursor == "":
		// One that the flags exclude: eventd alone decides, by the expression of the query.
		for _, name := range []string{"web-0", "another"} {
			s := step(v1alpha1.ActionDelivered, func(s *v1alpha1.Step) { s.Receiver, s.Regarding.Name = "loki", name })
			servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Step: &s})
		}
		bookmark("91", 5)
		<-req.Context().Done()
	}
}

func TestTailGoesOnAndSaysWhatIsLost(t *testing.T) {
	t.Run("in a namespace", func(t *testing.T) { tailGoesOn(t, "--namespace=default", "namespace=default&", "", "") })
	t.Run("in all", func(t *testing.T) { tailGoesOn(t, "--all-namespaces", "", "NAMESPACE       ", "default         ") })
}

func tailGoesOn(t *testing.T, scope, inQuery, header, cell string) {
	var connections atomic.Int32
	c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { tailing(w, req, connections.Add(1)) }))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut output
	done := make(chan int)
	go func() {
		done <- c.runIn(ctx, &out, &errOut, "tail", scope, "po/web-0", "--include=events,steps", "--match=event.count > 1", "--reason=BackOff")
	}()
	await.Until(t, "the last frame", func() bool { return strings.Contains(errOut.String(), "5 steps lost") })
	cancel() // Ctrl-C
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
	// A longer name moves no column.
	want := header + "AGE     TYPE      REASON                OBJECT                              COUNT   MESSAGE\n" +
		cell + "20m     Warning   BackOff               Pod/web-0                           4       a/71\n" +
		cell + "20m     Warning   BackOff               Pod/web-0                           4       a/72\n" +
		cell + "20m     Warning   BackOff               Pod/web-0                           4       a/73\n" +
		cell + "20m     Warning   BackOff               Pod/web-0                           3       [Delivered to loki] restarting\n" +
		cell + "20m     Warning   BackOff               Pod/another                         3       [Delivered to loki] restarting\n"
	if out.String() != want {
		t.Errorf("got\n%s\nnot\n%s", out.String(), want)
	}
	lines := strings.Split(errOut.String(), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "Warning: reconnecting: ") || lines[1] != "Warning: Events were lost: eventd no longer has what came after the last one" {
		t.Errorf("stderr is %q", lines)
	}
	query := c.eventd.Requests()[0].URL.Query()
	match := `!event.involvedObject.apiVersion.contains("/") && event.involvedObject.kind == "Pod" && event.involvedObject.name == "web-0" && event.reason == "BackOff" && (event.count > 1)`
	if got := query.Get(v1alpha1.ParamMatch); got != match {
		t.Errorf("matches %s, not %s", got, match)
	}
	query.Del(v1alpha1.ParamMatch)
	if got, want := query.Encode(), "include=events%2Csteps&"+inQuery+"watch=true"; got != want {
		t.Errorf("the query is %s, not %s", got, want)
	}
}

// Each attempt to reach a role that is away says it again, with another age.
func TestTailSaysOnceWhatIsMissing(t *testing.T) {
	c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, missing := range []string{"a, last renewed 47s ago: from :4711: refused", "a, last renewed 2m3s ago: from :4712: refused", "", "a: forbidden"} {
			servertest.Frame(w, "BOOKMARK", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Missing: missing})
		}
		servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "over"))
	}))
	_, errOut, _ := c.run("tail")
	if want := "Missing: a, last renewed 47s ago: from :4711: refused\nMissing: a: forbidden\nError from server (Forbidden): over\n"; !strings.HasPrefix(errOut, want) {
		t.Errorf("got %q, not %q", errOut, want)
	}
}

func TestTailPrintsOneItemALineForPipes(t *testing.T) {
	c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, v := range []string{"71", "72"} {
			item := event("a/"+v, "two\nlines")
			servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: v, Event: &item})
		}
		servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no longer"))
	}))
	out, errOut, code := c.run("tail", "-o", "json", "--resource-version", "70")
	if code != 1 || !strings.HasPrefix(errOut, "Error from server (Forbidden): no longer\n") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	var versions []string
	for line := range strings.Lines(out) {
		var item v1alpha1.TailItem
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		versions = append(versions, item.ResourceVersion)
	}
	if strings.Join(versions, " ") != "71 72" {
		t.Errorf("got %q", versions)
	}
}

// As kubectl events --watch does: what there is, then what comes, each once and of the types that were named.
func TestTimelineGoesOnAsATail(t *testing.T) {
	for flags, want := range map[string]string{
		"po/web-0": `!event.involvedObject.apiVersion.contains("/") && event.involvedObject.kind == "Pod" && event.involvedObject.name == "web-0" && event.type in ["Warning"]`,
		"Gizmo.example.com/web-0 --type Normal -o json": `(event.involvedObject.apiVersion == "" || event.involvedObject.apiVersion.startsWith("example.com/")) && ` +
			`event.involvedObject.kind == "Gizmo" && event.involvedObject.name == "web-0" && event.type in ["Normal"]`,
	} {
		normal := event("a/69", "of another type")
		normal.Type = "Normal"
		c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if !strings.HasSuffix(req.URL.Path, "/tail") {
				servertest.WriteJSON(w, http.StatusOK, v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), ListMeta: metav1.ListMeta{ResourceVersion: "70"}, Items: []v1alpha1.TimelineItem{normal, event("a/70", "before")}})
				return
			}
			for _, id := range []string{"a/70", "a/71"} {
				item := event(id, id)
				servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: "70", Event: &item})
			}
			servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "over"))
		}))
		out, errOut, code := c.run(append(strings.Fields("timeline -w --types Warning --for"), strings.Fields(flags)...)...)
		if code != 1 || !strings.HasPrefix(errOut, "Error from server (Forbidden): over\n") {
			t.Errorf("exit code %d, %s", code, errOut)
		}
		requests := c.eventd.Requests()
		query := requests[len(requests)-1].URL.Query()
		if got := query.Get(v1alpha1.ParamMatch); got != want || query.Get(v1alpha1.ParamResourceVersion) != "70" || query.Has(v1alpha1.ParamLimit) {
			t.Errorf("the tail is %s", query.Encode())
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if flags == "po/web-0" && (len(lines) != 3 || !strings.HasSuffix(lines[1], " before") || !strings.HasSuffix(lines[2], " a/71")) {
			t.Errorf("it prints\n%s", out)
		}
		if flags != "po/web-0" && (len(lines) != 3 || !strings.HasPrefix(lines[0], `{"kind":"TailItem"`) || !strings.Contains(lines[0], "of another type")) {
			t.Errorf("it prints\n%s", out)
		}
	}
}

func TestCompletion(t *testing.T) {
	c := newCLI(t, everything())
	for line, want := range map[string]string{
		"t":                   "tail\tShow Events as they come\ntimeline\tShow what happened to an object, in order\ntop\tShow what is reported most often\n:4\n",
		"why p":               "persistentvolumeclaim/\npod/\n:6\n",
		"why Widget/":         ":4\n",
		"top --by re":         "object\nreason\nnamespace\nreporter\n:4\n",
		"status -o ":          "json\nyaml\nwide\n:4\n",
		"status --connect=fo": "auto\nforward\ndirect\napiserver\n:4\n",
		"drops --context ":    "testenv\n:4\n",
	} {
		args := strings.Split("__complete "+line, " ")
		out, _, code := c.run(args...)
		if code != 0 || out != want {
			t.Errorf("%q: got %q, exit code %d; want %q", line, out, code, want)
		}
	}
}
