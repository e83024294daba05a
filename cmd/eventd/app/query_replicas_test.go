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

// Each figure of the status is that of /metrics, and the rest that of the election and the flags.
func TestStatusIsThatOfTheMetrics(t *testing.T) {
	r := newReplicas(t)
	replica.DeployObserve(t, r.cluster)
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

// The leader knows how each replica is, and answers while one hangs.
func TestStatusShowsEachReplica(t *testing.T) {
	r := newReplicas(t)
	leader := r.start()
	leader.awaitLeader()
	standby := r.start()
	standby.awaitStandby(r.holder())
	r.post(standby, "web.1")
	all := as(t, leader, r.administrator())
	var status v1alpha1.PipelineStatus
	followerIs := func(what string, is func(*v1alpha1.Replica) bool) {
		t.Helper()
		await.Until(t, "the standby is "+what, func() bool {
			status = v1alpha1.PipelineStatus{}
			began := time.Now()
			code := all.get("status", &status)
			if took := time.Since(began); code != http.StatusOK || took > 2*time.Second {
				t.Fatalf("the status is answered %d after %s", code, took)
			}
			return len(status.Followers) == 1 && is(&status.Followers[0])
		})
	}
	well := func(f *v1alpha1.Replica) bool {
		return f.Ready != nil && *f.Ready && *f.Follows && f.Version == status.Replica.Version && f.Started != nil && f.UnknownSince == nil
	}
	followerIs("known", well)
	standby.signal(syscall.SIGSTOP)
	followerIs("not known", func(f *v1alpha1.Replica) bool { return f.Ready == nil && f.UnknownSince != nil })
	standby.signal(syscall.SIGCONT)
	followerIs("known again", well)
	if !slices.ContainsFunc(figuresOf(&status), func(f v1alpha1.Figure) bool { return f.PerSecond != nil }) {
		t.Error("no figure has a rate")
	}
	standby.terminate(0)
	await.Until(t, "the standby is gone", func() bool {
		status = v1alpha1.PipelineStatus{}
		return all.get("status", &status) == http.StatusOK && len(status.Followers) == 0
	})
	leader.terminate(0)
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
