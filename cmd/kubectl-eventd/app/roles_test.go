package app_test

import (
	"maps"
	"net/http"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
)

// intakeAnswers are those of processes that only take reports.
func intakeAnswers() servertest.Answers {
	answers := everything()
	delete(answers, "timeline")
	answers["top"] = v1alpha1.Top{TypeMeta: typeMeta("Top"), Role: "intake", By: "object", OnlyReported: true, Items: []v1alpha1.TopItem{{Object: &web, Occurrences: 9}}}
	answers["why"] = v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Role: "intake", KnownSince: ago(30), Leader: "eventd-0_a", Steps: []v1alpha1.Step{step(v1alpha1.ActionRecorded, nil)}}
	return answers
}

// observeAnswers are those of processes that only observe.
func observeAnswers() servertest.Answers {
	answers := maps.Clone(everything())
	answers["status"] = v1alpha1.PipelineStatus{
		TypeMeta: typeMeta("PipelineStatus"), Replica: v1alpha1.Replica{Identity: "observe-0_a", Role: "leader"},
		Leader: &v1alpha1.Leader{Identity: "observe-0_a", Since: ago(20)},
		Flags:  map[string]string{"role": "observe", "config": "/observe"}, Configuration: &v1alpha1.ConfigurationStatus{Hash: "6287", LoadedAt: new(metav1.NewTime(ago(20).Time)), Error: "line 3"},
		Stations:  []v1alpha1.Station{{Name: "intake", Healthy: true, Figures: []v1alpha1.Figure{value(8)}}, {Name: "history", Healthy: true}},
		Apiserver: v1alpha1.Station{Name: "apiserver", Healthy: true},
	}
	answers["why"] = v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Role: "observe", KnownSince: ago(20), Leader: "observe-0_a", Steps: []v1alpha1.Step{step(v1alpha1.ActionDelivered, nil)}}
	return answers
}

// tailed answers a tail with a step and a refusal, which ends it, and all else as given.
func tailed(answers servertest.Answers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if path.Base(req.URL.Path) != "tail" {
			answers.ServeHTTP(w, req)
			return
		}
		if _, history := answers["timeline"]; !history && req.URL.Query().Get(v1alpha1.ParamInclude) != "steps" {
			http.NotFound(w, req)
			return
		}
		s := step(v1alpha1.ActionRecorded, nil)
		servertest.Frame(w, "ADDED", v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Step: &s})
		servertest.Frame(w, "ERROR", servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "over"))
	})
}

// What one role cannot answer is said on stderr, or in an error where nothing else is left.
func TestCommandsSayWhichRoleIsMissing(t *testing.T) {
	const (
		noObserve = "Missing: What is observed and delivered is not known: "
		noIntake  = "Missing: What is reported is not known: "
		rights    = "To connect, you need rights in kube-system: https://github.com/eventd/eventd/blob/main/docs/kubectl-eventd.md#rights"
		install   = "Install deploy/observe: https://"
		ready     = "Is a replica ready? kubectl -n kube-system get pods"
	)
	for name, test := range map[string]struct {
		prepare func(c *cli, observe *servertest.Eventd)
		missing string
		// err and advice are of what only those that observe have, "" if they answer.
		err, advice string
	}{
		"no Lease of observe": {nil, noObserve + "there is no Lease kube-system/eventd-observe",
			"error: nothing observes here: there is no Lease kube-system/eventd-observe", install},
		"observe has no holder": {func(c *cli, observe *servertest.Eventd) {
			c.cluster.Observe(observe)
			c.cluster.Release("eventd-observe")
		}, noObserve + "no eventd leads at the moment: the Lease kube-system/eventd-observe has no holder", "error: no eventd leads at the moment: the Lease kube-system/eventd-observe", ready},
		"observe refuses": {func(c *cli, observe *servertest.Eventd) {
			c.cluster.Observe(observe)
			observe.Close()
		}, noObserve + "connecting to eventd, which holds the Lease kube-system/eventd-observe: dial tcp", "error: connecting to eventd, which holds the Lease kube-system/eventd-observe", ready},
		"the Lease of observe is forbidden": {func(c *cli, observe *servertest.Eventd) {
			c.cluster.Observe(observe)
			c.cluster.Forbid("eventd-observe")
		}, noObserve + "reading eventd's Lease: leases \"eventd-observe\" is forbidden", "Error from server (Forbidden): reading eventd's Lease: leases \"eventd-observe\"", rights},
		"the intake refuses": {func(c *cli, observe *servertest.Eventd) {
			c.cluster.Observe(observe)
			c.eventd.Close()
		}, noIntake + "connecting to eventd, which holds the Lease kube-system/eventd: dial tcp", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t, tailed(intakeAnswers()))
			observe := servertest.NewEventd(t, tailed(observeAnswers()))
			if test.prepare != nil {
				test.prepare(c, observe)
			}
			for _, line := range []string{"why po/web-0", "top -A", "tail --include=events,steps"} {
				out, errOut, code := c.run(strings.Fields(line)...)
				if first, _, _ := strings.Cut(errOut, "\n"); out == "" || (code == 0) == strings.HasPrefix(line, "tail") || !strings.HasPrefix(first, test.missing) {
					t.Errorf("%s: exit code %d, %q, %q; want %q", line, code, out, errOut, test.missing)
				}
				if strings.Contains(errOut, "--history-bytes") {
					t.Errorf("%s: it recommends a flag of the other role: %q", line, errOut)
				}
			}
			if test.err == "" {
				return
			}
			for _, line := range []string{"timeline -n default", "timeline -A -w", "tail -A"} {
				if strings.HasPrefix(name, "observe has no holder") && line != "timeline -n default" {
					continue // waits 20 s for one
				}
				if strings.HasPrefix(name, "observe refuses") && line == "tail -A" {
					continue // as well
				}
				out, errOut, code := c.run(strings.Fields(line)...)
				first, second, _ := strings.Cut(errOut, "\n")
				if out != "" || code != 1 || !strings.HasPrefix(first, test.err) || !strings.HasPrefix(second, test.advice) {
					t.Errorf("%s: exit code %d, %q; want %q, %q", line, code, errOut, test.err, test.advice)
				}
			}
		})
	}
}

// The check whether an object exists needs both roles: an answer of one stays an answer.
func TestWithoutARoleAnObjectThatIsUnknownIsNoError(t *testing.T) {
	intake := intakeAnswers()
	intake["why"] = v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Role: "intake", KnownSince: ago(30), Leader: "eventd-0_a"}
	c := newCLI(t, intake)
	observe := servertest.NewEventd(t, observeAnswers())
	c.cluster.Observe(observe)
	observe.Close()
	for object, unknown := range map[string]string{
		"Pod/none":    `pods "none" not found in default namespace`,
		"gizmos/none": `the server doesn't have a resource type "gizmos"`,
	} {
		_, errOut, code := c.run("why", object)
		for _, want := range []string{
			unknown + ". Whether eventd has Events of " + object + " cannot be checked: connecting to eventd, which holds the Lease kube-system/eventd-observe",
			"Missing: What is observed and delivered is not known", "No reports about " + object + " found", "The leader eventd-0_a remembers the last 30m.",
		} {
			if code != 0 || !strings.Contains(errOut, want) {
				t.Errorf("%s: exit code %d, %q does not have %q", object, code, errOut, want)
			}
		}
	}
}

// Each role has its block, with its own flags, and a refused file looks like an error.
func TestStatusSaysWhichRoleALineIsOf(t *testing.T) {
	intake := intakeAnswers()
	status := intake["status"].(v1alpha1.PipelineStatus)
	status.Flags, status.Followers, status.History = map[string]string{"role": "intake", "config": "/intake"}, nil, nil
	intake["status"] = status
	c := newCLI(t, intake)
	observe := servertest.NewEventd(t, observeAnswers())
	c.cluster.Observe(observe)
	ofObserve := `Role:          observe
Leader:        observe-0_a, since 20m, 0 handovers
Replica:       observe-0_a, leader
Configuration: 6287, loaded 20m ago; the changed file is refused, this one stays in force: line 3
Flag:          --config=/observe
Flag:          --role=observe
`
	both := `Role:          intake
Leader:        eventd-0_a, since 20m, 3 handovers
Replica:       eventd-0_a, leader, v1.2.3, started 20m ago
Flag:          --config=/intake
Flag:          --role=intake
` + ofObserve
	if out := c.mustRun("status -o wide"); !strings.HasPrefix(out, both+"\n") {
		t.Errorf("got\n%s\nnot\n%s", out, both)
	}
	if _, errOut, _ := c.run("why", "po/web-0"); errOut != "The leader eventd-0_a remembers the last 30m.\nThe leader of observe, observe-0_a, remembers the last 20m.\n" {
		t.Errorf("why says %q", errOut)
	}
	// Those that observe know nothing of the way in.
	c.eventd.Close()
	out := c.mustRun("status -o wide")
	if missing, rest, _ := strings.Cut(out, "\n"); !strings.HasPrefix(missing, "Missing:       What is reported is not known: ") || !strings.HasPrefix(rest, ofObserve+"\n") {
		t.Errorf("got\n%s\nnot\n%s", out, ofObserve)
	}
	for _, station := range []string{"\nintake ", "\napiserver "} {
		if strings.Contains(out, station) {
			t.Errorf("it shows%s in\n%s", station, out)
		}
	}
}
