package app

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

const queryRoot = "/apis/query.eventd.io/v1alpha1/"

// reader is a ServiceAccount that queries a replica.
type reader struct {
	t      testing.TB
	client *http.Client
	url    string
}

// as returns a reader of a replica with the token of an account.
func as(t testing.TB, c *child, account *rest.Config) *reader {
	t.Helper()
	config := rest.AnonymousClientConfig(c.config) // without the certificate of the administrator
	config.BearerToken = account.BearerToken
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &reader{t, client, config.Host + queryRoot}
}

// open sends a query.
func (r *reader) open(ctx context.Context, path string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := r.client.Do(req)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return response
}

// get decodes the answer to a query, if it is 200, and returns its code.
func (r *reader) get(path string, into any) int {
	r.t.Helper()
	response := r.open(r.t.Context(), path)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK && into != nil {
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			r.t.Fatalf("%s: %v", path, err)
		}
	}
	return response.StatusCode
}

// awaitEvents waits until the history has the Events of a namespace about the Pod, and returns them.
func (r *reader) awaitEvents(path string, n int) (items []v1alpha1.TimelineItem) {
	r.t.Helper()
	await.Until(r.t, "the history has the Events", func() bool {
		var timeline v1alpha1.Timeline
		code := r.get(path, &timeline)
		items = timeline.Items
		return code == http.StatusOK && len(items) >= n
	})
	return items
}

func mayRead(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: verbs}
}

// Every query, of a leader and of a standby, with the rights of the apiserver.
func TestQueriesShowWhatTheApiserverWouldShow(t *testing.T) {
	r := newReplicas(t)
	replica.DeployHistory(t, r.cluster)
	leader := r.start("--history-bytes=8Mi")
	leader.awaitLeader()
	standby := r.start("--history-bytes=8Mi")
	standby.awaitStandby(r.holder())
	r.post(standby, "web.1")
	other := r.cluster.Namespace(t)
	seesOne := r.cluster.ServiceAccount(t, r.namespace, "sees-one")
	r.cluster.Grant(t, r.namespace, "sees-one", mayRead("list", "watch"))
	seesOther := r.cluster.ServiceAccount(t, other, "sees-other")
	r.cluster.Grant(t, other, "sees-other", mayRead("list"))
	seesNone := r.cluster.ServiceAccount(t, other, "sees-none")

	about := "?namespace=" + r.namespace
	queries := []string{"top" + about, "timeline" + about, "why" + about + "&kind=Pod&name=web", "drops" + about, "tail" + about + "&watch=true"}
	for _, to := range []*child{leader, standby} {
		as(t, to, seesOne).awaitEvents("timeline"+about+"&name=web", 1)
		for _, path := range queries {
			for who, account := range map[string]*rest.Config{"another namespace": seesOther, "none": seesNone} {
				if code := as(t, to, account).get(path, nil); code != http.StatusForbidden {
					t.Errorf("%s is answered %d to who may see %s", path, code, who)
				}
			}
			ctx, leave := context.WithCancel(t.Context())
			if code := as(t, to, seesOne).open(ctx, path).StatusCode; code != http.StatusOK {
				t.Errorf("%s is answered %d to who may see it", path, code)
			}
			leave()
		}
		for _, path := range []string{"status", "status?local=true", "top", "timeline", "drops"} {
			if code := as(t, to, seesOne).get(path, nil); code != http.StatusForbidden {
				t.Errorf("%s is answered %d to who may see one namespace", path, code)
			}
		}
		if code := as(t, to, seesOther).get("tail?watch=true&namespace="+other, nil); code != http.StatusForbidden {
			t.Errorf("a watch is answered %d to who may only list", code)
		}
	}
	var why v1alpha1.Explanation
	if code := as(t, standby, seesOne).get("why"+about+"&kind=Pod&name=web", &why); code != http.StatusOK ||
		why.Leader != r.holder() || len(why.Events) != 1 || !hasStep(why.Steps, v1alpha1.ActionSettled, "created") {
		t.Errorf("%d: the explanation is %+v", code, why)
	}
	var top v1alpha1.Top
	if code := as(t, standby, seesOther).get("top?namespace="+other, &top); code != http.StatusOK || top.Occurrences != 0 || len(top.Items) != 0 {
		t.Errorf("%d: what others did is in %+v", code, top)
	}
	// A right that is taken away is gone within the time of the cache, and its watch ends.
	one := as(t, standby, seesOne)
	tail := one.open(t.Context(), "tail"+about+"&watch=true")
	defer func() { _ = tail.Body.Close() }()
	if err := r.client.RbacV1().RoleBindings(r.namespace).Delete(t.Context(), "sees-one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	taken := time.Now()
	lines := bufio.NewScanner(tail.Body)
	for lines.Scan() {
		if time.Since(taken) > await.Timeout {
			t.Fatal("the tail goes on")
		}
	}
	ended := time.Since(taken)
	if code := one.get("timeline"+about, nil); code != http.StatusServiceUnavailable && code != http.StatusForbidden {
		t.Errorf("%s after the right was taken away, a query is answered %d", ended, code)
	}
	t.Logf("the tail has ended %s after the right was taken away", ended)
	standby.terminate(0)
	leader.terminate(0)
}

func hasStep(steps []v1alpha1.Step, action, outcome string) bool {
	return slices.ContainsFunc(steps, func(s v1alpha1.Step) bool { return s.Action == action && s.Outcome == outcome })
}

// Each figure of the status is that of /metrics, and the rest that of the election and the flags.
func TestStatusIsThatOfTheMetrics(t *testing.T) {
	r := newReplicas(t)
	replica.DeployHistory(t, r.cluster)
	leader := r.start("--history-bytes=8Mi")
	leader.awaitLeader()
	standby := r.start()
	standby.awaitStandby(r.holder())
	r.post(standby, "web.1")
	r.awaitCount(1)
	all := as(t, standby, r.administrator())
	var status v1alpha1.PipelineStatus
	await.Until(t, "the status is quiet", func() bool {
		if code := all.get("status", &status); code != http.StatusOK {
			t.Fatalf("the status is answered %d", code)
		}
		return len(status.Followers) == 1 && status.History != nil && status.History.Connected
	})
	if status.Replica.Identity != r.holder() || status.Replica.Role != "leader" || status.Leader == nil || status.Leader.Identity != r.holder() ||
		status.Leader.Since.IsZero() || status.Replica.Ready == nil || !*status.Replica.Ready || status.Flags["history-bytes"] != "8Mi" {
		t.Errorf("the status is %+v, %+v", status, status.Leader)
	}
	var local v1alpha1.PipelineStatus
	all.get("status?local=true", &local)
	if local.Replica.Role != "standby" || local.Replica.Identity == r.holder() || local.Replica.Identity != status.Followers[0].Identity {
		t.Errorf("the standby is %+v, the follower %+v", local.Replica, status.Followers)
	}
	checkFigures(t, r, leader, as(t, leader, r.administrator()))
	// Open watches do not delay the end.
	for range 50 / 2 {
		for _, to := range []*child{leader, standby} {
			response := as(t, to, r.administrator()).open(t.Context(), "tail?watch=true&include=events,steps&namespace=none")
			defer func() { _ = response.Body.Close() }()
			if to == standby {
				break
			}
		}
	}
	for _, c := range []*child{standby, leader} {
		began := time.Now()
		c.signal(syscall.SIGTERM)
		c.requireExit(0)
		t.Logf("with open watches, the end took %s", time.Since(began))
	}
}

// administrator returns an account that may list and watch all Events, and read /metrics.
func (r *replicas) administrator() *rest.Config {
	r.t.Helper()
	config := r.cluster.ServiceAccount(r.t, r.namespace, "admin")
	rbac := kubernetes.NewForConfigOrDie(r.cluster.Config()).RbacV1()
	name := "admin-" + r.namespace
	if _, err := rbac.ClusterRoleBindings().Get(r.t.Context(), name, metav1.GetOptions{}); err == nil {
		return config
	}
	if _, err := rbac.ClusterRoleBindings().Create(r.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: r.namespace, Name: "admin"}},
	}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(context.WithoutCancel(r.t.Context()), name, metav1.DeleteOptions{})
	})
	return config
}

// checkFigures compares each figure of a status with /metrics, until there is a moment at which all agree:
// the queries themselves, and the time, are in the metrics too.
func checkFigures(t *testing.T, r *replicas, c *child, admin *reader) {
	t.Helper()
	var differing []string
	compared := 0
	await.Until(t, "all figures are those of /metrics", func() bool {
		var status v1alpha1.PipelineStatus
		if code := admin.get("status", &status); code != http.StatusOK {
			t.Fatalf("the status is answered %d", code)
		}
		m := c.WantMetrics(t, r.cluster)
		differing, compared = nil, 0
		for _, figure := range figuresOf(&status) {
			var labels []string
			for name, value := range figure.Labels {
				labels = append(labels, name+"="+value)
			}
			compared++
			if got := m.Sum(figure.Metric, labels...); got != figure.Value && !strings.HasSuffix(figure.Metric, "_seconds") {
				differing = append(differing, figure.Metric)
			}
		}
		return len(differing) == 0
	})
	if compared < 40 {
		t.Errorf("only %d figures were compared: %v", compared, differing)
	}
}

func figuresOf(status *v1alpha1.PipelineStatus) (all []v1alpha1.Figure) {
	for _, station := range append([]v1alpha1.Station{status.Apiserver}, status.Stations...) {
		all = append(all, station.Figures...)
		if q := station.Queue; q != nil {
			all = append(all, q.Length)
			for _, f := range []*v1alpha1.Figure{q.Capacity, q.OldestSeconds} {
				if f != nil {
					all = append(all, *f)
				}
			}
		}
	}
	for _, receiver := range status.Receivers {
		all = append(append(all, receiver.LagSeconds, receiver.Pending), receiver.Settled...)
	}
	return all
}

func TestPagesOfTheProcess(t *testing.T) {
	r := newReplicas(t)
	alone := r.start("--leader-elect=false", "--trail-bytes=0")
	admin := as(t, alone, r.administrator())
	for path, want := range map[string]string{"/statusz": "statusz", "/flagz": "trail-bytes"} {
		admin.url = strings.TrimSuffix(admin.url, queryRoot) + path
		response := admin.open(t.Context(), "")
		text, err := bufio.NewReader(response.Body).Peek(4096)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s is answered %d: %.200s (%v)", path, response.StatusCode, text, err)
		}
		admin.url = strings.TrimSuffix(admin.url, path) + queryRoot
	}
	var list metav1.APIResourceList
	admin.url = strings.TrimSuffix(admin.url, "/")
	if code := admin.get("", &list); code != http.StatusOK || len(list.APIResources) != 1 || list.APIResources[0].Name != "status" {
		t.Errorf("%d: the resources are %+v", code, list.APIResources)
	}
	alone.terminate(0)
}
