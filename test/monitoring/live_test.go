package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// A Prometheus with the rights of deploy/monitoring scrapes two replicas of the intake while Events
// go through both, and one hands over to the other, and one replica of observe.
func TestPrometheusSeesBothRoles(t *testing.T) {
	program := prometheusTool(t, "prometheus")
	cluster := testenv.Shared(t)
	reader, stranger := metricsReader(t, cluster)
	replicas := []*replica.Replica{startReplica(t, cluster, app.RoleIntake), startReplica(t, cluster, app.RoleIntake)}
	observe := startReplica(t, cluster, app.RoleObserve)
	if _, err := replicas[0].Metrics(t.Context(), stranger); !apierrors.IsForbidden(err) {
		t.Errorf("without the right to /metrics: %v", err)
	}
	p := startPrometheus(t, program, writeConfig(t, reader.BearerToken, address(replicas[0]), address(replicas[1]), address(observe)))
	waitFor(t, "all replicas to be scraped, and one of each role to lead", func() error {
		return p.wants(`sum(up{job="eventd"}) == 3 and count(sum by (role) (eventd_election_leading{job="eventd"}) == 1) == 2`)
	})

	recorded := 0
	for _, r := range replicas {
		recorded += feed(t, r, cluster)
	}
	// A replica reports by itself that it has become the leader; half of the others
	// were reported to the one that does not lead.
	waitFor(t, "the accounts to agree", func() error {
		return p.wants(fmt.Sprintf(`sum(eventd_occurrences_recorded_total) - sum(eventd_election_transitions_total{role="intake", transition="became"}) == %d
			and sum(eventd_occurrences_recorded_total) - sum(eventd_occurrences_settled_total) - sum(eventd_occurrences_pending) == 0
			and sum(eventd_occurrences_settled_total{outcome=~"dropped|uncertain"}) == 0
			and sum(eventd_relay_requests_total{code=~"20."}) == %d`, recorded, recorded/len(replicas)))
	})
	for _, q := range dashboardQueries(t) {
		waitFor(t, "a value in "+q.panel, func() error { return p.wantsValue(forJob(q.expr)) })
	}
	wantVariables(t, p)
	wantRulesAreSilent(t, p)

	leader := replicas[0]
	if p.wants(fmt.Sprintf(`eventd_election_leading{role="intake", instance=%q} == 1`, address(leader))) != nil {
		leader = replicas[1]
	}
	leader.Terminate(t)
	waitFor(t, "the other to be seen as the leader", func() error {
		return p.wants(fmt.Sprintf(`eventd_election_leading{role="intake", instance!=%q} == 1`, address(leader)))
	})
	for _, a := range readDashboard(t).Annotations.List {
		waitFor(t, a.Name+" to show it", func() error { return p.wantsValue(forJob(a.Expr)) })
	}
	for _, r := range replicas {
		if r != leader {
			r.Terminate(t)
		}
	}
	waitFor(t, "no intake to be seen", func() error { return p.wants(`ALERTS{alertname="EventdIntakeAbsent"} == 1`) })
	if p.wants(`ALERTS{alertname="EventdObserveAbsent"}`) == nil {
		t.Error("observe is said to be absent")
	}
}

// metricsReader returns the credentials of the account that may read metrics by
// deploy/monitoring, and of another one.
func metricsReader(t *testing.T, c *testenv.ControlPlane) (reader, stranger *rest.Config) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(c.Config())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), "../../deploy/monitoring/rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	reader = c.ServiceAccount(t, namespace.Name, "prometheus-k8s")
	err := testenv.WaitAllowed(t.Context(), client, authorizationv1.SubjectAccessReviewSpec{
		User:                  testenv.User(namespace.Name, "prometheus-k8s"),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return reader, c.ServiceAccount(t, namespace.Name, "stranger")
}

// feed reports occurrences for every path through the pipeline: Events that differ,
// repeats, and similar ones. It returns their number.
func feed(t *testing.T, r *replica.Replica, c *testenv.ControlPlane) (occurrences int) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(r.Config(c.Config()))
	namespace := c.Namespace(t)
	post := func(object, message string) {
		t.Helper()
		occurrences++
		event := replica.Event(namespace, fmt.Sprintf("%s.%d", object, occurrences), object)
		event.Message = message
		_, err := client.CoreV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 20 {
		post(fmt.Sprintf("alone-%d", n), "it differs")
	}
	for range 5 {
		post("repeated", "it is the same")
	}
	for n := range 15 {
		post("similar", fmt.Sprintf("only the message differs: %d", n))
	}
	return occurrences
}

// wants returns an error unless an expression has a result.
func (p *prometheus) wants(expr string) error {
	result, err := p.query(expr)
	if err == nil && len(result) == 0 {
		err = fmt.Errorf("no result: %s", expr)
	}
	return err
}

// wantsValue returns an error unless an expression has a result that is a number.
func (p *prometheus) wantsValue(expr string) error {
	result, err := p.query(expr)
	if err != nil {
		return err
	}
	for _, sample := range result {
		if !math.IsNaN(float64(sample.Value)) {
			return nil
		}
	}
	return fmt.Errorf("%d series, and none has a number: %s", len(result), expr)
}

// wantVariables checks that the dashboard's variables have values.
func wantVariables(t *testing.T, p *prometheus) {
	t.Helper()
	labelValues := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	checked := 0
	for _, v := range readDashboard(t).Templating.List {
		asked, ok := v.Query.(map[string]any)
		if !ok {
			continue // which data source
		}
		found := labelValues.FindStringSubmatch(asked["query"].(string))
		if found == nil {
			t.Errorf("variable %s: %v", v.Name, asked)
			continue
		}
		values, _, _, err := p.LabelValues(t.Context(), found[2], []string{found[1]}, time.Time{}, time.Time{})
		if err != nil || !slices.Equal(values, model.LabelValues{"eventd"}) {
			t.Errorf("variable %s can be %v (%v)", v.Name, values, err)
		}
		checked++
	}
	if checked == 0 {
		t.Error("the dashboard has no variables")
	}
}

// wantRulesAreSilent checks that all alerts are loaded and can be evaluated, and that
// none fires for two healthy replicas.
func wantRulesAreSilent(t *testing.T, p *prometheus) {
	t.Helper()
	_, rules := ruleFile(t)
	var loaded []prometheusv1.AlertingRule
	waitFor(t, "the alerts to be evaluated", func() error {
		loaded = nil
		answer, err := p.Rules(t.Context(), nil)
		for _, g := range answer.Groups {
			for _, r := range g.Rules {
				alert := r.(prometheusv1.AlertingRule)
				if loaded = append(loaded, alert); alert.Health == prometheusv1.RuleHealthUnknown {
					err = errors.New(alert.Name)
				}
			}
		}
		return err
	})
	for _, r := range loaded {
		if r.Health != prometheusv1.RuleHealthGood || r.State != "inactive" {
			t.Errorf("%s is %s and %s: %s", r.Name, r.Health, r.State, r.LastError)
		}
	}
	if len(loaded) != len(rules) {
		t.Errorf("%d rules are loaded, of %d", len(loaded), len(rules))
	}
}

// prometheus is a client of a running Prometheus.
type prometheus struct {
	prometheusv1.API
	t *testing.T
}

// listening is in the log of Prometheus when it has a port.
var listening = regexp.MustCompile(`Listening on.*address="?([^"\s]+)`)

// startPrometheus starts a Prometheus on a free port, with a data directory of its
// own, and waits until it listens.
func startPrometheus(t *testing.T, program, configFile string) *prometheus {
	t.Helper()
	child, err := process.Start("prometheus", "", exec.Command(program, "--config.file="+configFile,
		"--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"), "--web.listen-address=127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := await.Context(t)
		defer cancel()
		if err := child.Stop(ctx); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Logf("prometheus's log:\n%s", child.Stderr())
		}
	})
	var address []string
	await.Until(t, "prometheus to listen", func() bool {
		address = listening.FindStringSubmatch(child.Stderr())
		return address != nil || child.Ended()
	})
	if address == nil {
		t.Fatal("prometheus has ended")
	}
	client, err := api.NewClient(api.Config{Address: "http://" + address[1], RoundTripper: transport})
	if err != nil {
		t.Fatal(err)
	}
	return &prometheus{prometheusv1.NewAPI(client), t}
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) (model.Vector, error) {
	ctx, cancel := await.Context(p.t)
	defer cancel()
	result, _, _, err := p.Query(ctx, expr, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	vector, ok := result.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s is a %s", expr, result.Type())
	}
	return vector, nil
}

// writeConfig writes a configuration that scrapes targets as in deploy/monitoring, but
// every second, with a token, and with its alerts.
func writeConfig(t *testing.T, token string, targets ...string) (configFile string) {
	t.Helper()
	dir := t.TempDir()
	how := findServiceMonitor(t).Spec.Endpoints[0]
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	rules, _ := ruleFile(t)
	config, err := json.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{write("rules.yaml", rules)},
		"scrape_configs": []any{map[string]any{
			"job_name":       "eventd",
			"scheme":         how.Scheme,
			"metrics_path":   how.Path,
			"authorization":  map[string]any{"credentials_file": write("token", []byte(token))},
			"tls_config":     map[string]any{"insecure_skip_verify": how.TLSConfig.InsecureSkipVerify},
			"static_configs": []any{map[string]any{"targets": targets}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return write("prometheus.yaml", config)
}
