package app

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

// The intake writes what it is told with no right to read Events, and a process of its own observes and delivers it.
func TestRolesAreTwoProcesses(t *testing.T) {
	r := newReplicas(t)
	dir := t.TempDir()
	config, delivered := filepath.Join(dir, "configuration.yaml"), filepath.Join(dir, "delivered.jsonl")
	writeConfiguration(t, config, headOfConfiguration+"receivers:\n- {name: file, jsonLines: {path: "+delivered+"}}\n")
	observe := r.startWith(replica.Options{Credentials: r.cluster.Config(), PeerToken: r.token},
		"--role=observe", "--history-bytes=8Mi", "--cluster-name=test", "--config="+config)
	intake := r.start("--role=intake")
	intake.awaitAnswer("/readyz?verbose", http.StatusOK, "leader")
	observe.awaitAnswer("/readyz?verbose", http.StatusOK, "leader")
	r.post(intake, "web")
	r.awaitCount(1)
	const about, observed = "/apis/query.eventd.io/v1alpha1/", "/apis/observe.eventd.io/v1alpha1/"
	observe.awaitAnswer(observed+"timeline?namespace="+r.namespace, http.StatusOK, `"web"`)
	await.Until(t, "the Event is delivered", func() bool {
		lines, _ := os.ReadFile(delivered)
		return strings.Contains(string(lines), r.namespace)
	})
	wantAnswer(t, intake.config, about+"timeline?namespace="+r.namespace, http.StatusNotFound, "")
	wantAnswer(t, intake.config, about+"status", http.StatusOK, `"leader"`)
	wantAnswer(t, observe.config, "/api/v1", http.StatusNotFound, "")
	if err := create(t.Context(), kubernetes.NewForConfigOrDie(observe.config), r.namespace, "refused"); err == nil || !strings.Contains(err.Error(), "not find") {
		t.Errorf("a report to a process that only observes: %v", err)
	}
	wantAnswer(t, observe.config, "/metrics", http.StatusOK, `eventd_election_leading{role="observe"} 1`)
	wantAnswer(t, observe.config, "/metrics", http.StatusOK, "eventd_intake_unwritten_bytes_capacity 1.2582912e+07")
	for _, c := range []*child{intake, observe} {
		c.terminate(0)
	}
}

// A configuration of the other role is refused: nothing of it would be done.
func TestConfigurationOfTheOtherRoleIsRefused(t *testing.T) {
	for content, role := range map[string]string{
		toStdout: RoleIntake,
		headOfConfiguration + "metrics:\n- name: events\n":                             RoleIntake,
		headOfConfiguration + "intake:\n- {name: none, match: \"true\", drop: true}\n": RoleObserve,
	} {
		for _, of := range []string{RoleIntake, RoleObserve, RoleAll} {
			c, _ := newTestConfiguration(t, content)
			c.role = of
			if err := c.load(t.Context()); (err == nil) != (of != role) {
				t.Errorf("%s: %s is answered %v", of, content, err)
			}
		}
	}
}
