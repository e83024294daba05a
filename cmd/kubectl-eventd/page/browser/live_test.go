package browser

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/test/process"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// bin has eventd and feeder, which "make screenshots" builds.
var bin = flag.String("bin", "", "`folder` of the binaries for screenshots of a real eventd")

// TestScreenshots takes pictures of a real eventd that is empty, busy and failing, with a kube-apiserver, two
// replicas, six receivers and feeders. It checks what TestEveryViewIsReadable does.
func TestScreenshots(t *testing.T) {
	if *bin == "" || *screenshots == "" {
		t.Skip("only make screenshots takes them")
	}
	t.Chdir("../..") // from there, replica.Deploy finds deploy/
	l := &live{t: t, cluster: testenv.StartForTest(t, testenv.Options{}), browser: launch(t), dir: t.TempDir()}
	l.account = replica.Deploy(t, l.cluster)
	replica.DeployObserve(t, l.cluster)

	alone := l.start("eventd-0")
	l.open()
	l.shoot("empty", "/", "/top", "/drops", "/tail", "/object", "/object?kind=Pod&name=web-1")
	alone.Terminate(t)

	flags := []string{"--history-bytes=64Mi", "--cluster-name=prod-eu-1", "--config=" + l.configure()}
	leader := l.start("eventd-0", flags...)
	l.start("eventd-1", flags...)
	l.open()
	for _, namespace := range []string{"shop", "telemetry"} {
		l.feed(leader, namespace, 1000)
	}
	l.reportNoise(leader)
	l.watch("the delivery", `document.querySelectorAll('.receiver').length > 6 && Number(document.querySelector('[data-metric=eventd_history_versions]').value) > 8000`)
	l.shoot("busy", "/", "/top", "/top?by=reason", "/drops", "/drops?rule=pulls", "/tail", "/object?kind=Pod&name="+noisyName+"&namespace=shop")

	l.away.Close()      // a receiver is away
	l.write(`["team"]`) // which most Events do not have
	l.watch("the problems", `document.querySelector('.receiver.bad') && document.querySelector('.card .failed')`)
	l.shoot("failing-receiver", "/")
	if err := l.cluster.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.watch("the apiserver fails", `document.querySelector('[data-key=apiserver].bad') || document.querySelector('#problem') || document.body.classList.contains('stale')`)
	l.shoot("failing", "/", "/top", "/drops", "/tail")
	if err := l.cluster.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// live is what the pictures are of.
type live struct {
	t       *testing.T
	cluster *testenv.ControlPlane
	account *rest.Config
	browser *chromium
	dir     string
	server  string // of all receivers but one
	away    *httptest.Server
	address string // of the page
	tab     *tab   // of the page, with a session
}

// start starts a replica that is called as in a cluster, and not as this machine.
func (l *live) start(name string, flags ...string) *replica.Replica {
	l.t.Helper()
	script := filepath.Join(l.dir, name)
	text := fmt.Sprintf("#!/bin/sh\nexec unshare --user --map-root-user --uts sh -c 'hostname %s && exec \"$@\"' sh %s/eventd \"$@\"\n", name, *bin)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		l.t.Fatal(err)
	}
	return replica.Run(l.t, l.cluster, replica.Options{Binary: script, Credentials: l.account, PeerToken: replica.PeerToken(l.t, l.cluster), Flags: flags})
}

// configure starts what the receivers deliver to, which accepts everything, and returns the file of --config.
func (l *live) configure() string {
	l.t.Helper()
	accept := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(http.StatusOK)
	})
	server := httptest.NewServer(accept)
	l.t.Cleanup(server.Close)
	l.away = httptest.NewServer(accept)
	l.t.Cleanup(l.away.Close)
	l.server = server.URL
	return l.write(`[?"team"].orValue("")`)
}

// write writes the file of --config. One route reads a label as given.
func (l *live) write(label string) string {
	l.t.Helper()
	file := filepath.Join(l.dir, "configuration.yaml")
	text := strings.NewReplacer("[TEAM]", label, "SERVER", l.server, "AWAY", l.away.URL, "DIR", l.dir).Replace(configuration)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return file
}

const configuration = `apiVersion: config.eventd.io/v1alpha1
kind: EventdConfiguration
receivers:
- {name: loki, from: Oldest, otlp: {endpoint: SERVER/v1/logs, protocol: http, insecure: true}}
- {name: siem, from: Oldest, otlp: {endpoint: SERVER/v1/logs, protocol: http, insecure: true}}
- {name: pager, from: Oldest, cloudEvents: {url: AWAY, insecure: true, batched: true}}
- {name: team-shop, from: Oldest, cloudEvents: {url: SERVER/shop, insecure: true, batched: true}}
- {name: team-telemetry-and-observability, from: Oldest, cloudEvents: {url: SERVER/telemetry, insecure: true, batched: true}}
- {name: audit-log, from: Oldest, jsonLines: {path: DIR/audit.jsonl}}
routes:
- {name: keep-all, receivers: [loki, audit-log], continue: true}
- {name: labelled, match: 'event.metadata.labels[TEAM] == "security"', receivers: [siem], continue: true}
- {name: warnings, match: event.type == "Warning", receivers: [pager, siem], continue: true}
- {name: shop, match: event.metadata.namespace == "shop", receivers: [team-shop]}
- {name: rest, receivers: [team-telemetry-and-observability]}
intake:
- {name: probes, match: 'event.reason == "Unhealthy" && event.count > 3', drop: true}
- {name: pulls, match: 'event.type == "Normal" && event.reason in ["Pulling", "Pulled", "Created", "Started"]', drop: true, dryRun: true}
- {name: crash-loops, match: event.reason == "BackOff", budget: {burst: 5, qps: 1/60}}
metrics:
- {name: warnings, match: event.type == "Warning", labels: {namespace: metadata.namespace}}
`

// feed runs a feeder until the test ends.
func (l *live) feed(to *replica.Replica, namespace string, rate int) {
	l.t.Helper()
	kubeconfig := filepath.Join(l.dir, "feeder-"+namespace)
	if err := testenv.WriteKubeconfig(kubeconfig, to.Config(l.reporter(namespace))); err != nil {
		l.t.Fatal(err)
	}
	feeder, err := process.Start("feeder", filepath.Join(l.dir, "log-"+namespace),
		exec.Command(filepath.Join(*bin, "feeder"), "--kubeconfig="+kubeconfig, "--namespace="+namespace, fmt.Sprint("--rate=", rate)))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(feeder.Kill)
}

func (l *live) reporter(namespace string) *rest.Config {
	l.t.Helper()
	namespaces := kubernetes.NewForConfigOrDie(l.cluster.Config()).CoreV1().Namespaces()
	if _, err := namespaces.Create(l.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	return replica.Reporter(l.t, l.cluster, namespace)
}

// noisyName is as long as a name may be.
var noisyName = strings.Repeat("checkout-frontend-", 13) + "7d9f6c4b5-k2xwq"

// reportNoise reports Events with what is hardest to show.
func (l *live) reportNoise(to *replica.Replica) {
	l.t.Helper()
	events := kubernetes.NewForConfigOrDie(to.Config(l.cluster.Config())).CoreV1().Events("shop")
	for i, message := range []string{
		strings.Repeat("no_space_in_this_message_", 40), `<script>alert("x")</script> <b>bold</b> ` + strings.Repeat("many words ", 80),
		"\u202eright to left\u202c and \x1b[31mred, two\nlines", strings.Repeat("日本語のメッセージ", 30),
	} {
		now := metav1.Now()
		if _, err := events.Create(l.t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", GenerateName: "noise-"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: noisyName},
			Reason:         "VeryNoisy", Message: message, Type: corev1.EventTypeWarning, Count: int32(1 + 12_345*i),
			FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "kubelet", Host: "worker-17.eu-central-1.compute.internal"},
		}, metav1.CreateOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// open opens the page of the administrator.
func (l *live) open() {
	l.t.Helper()
	c, err := client.New(l.cluster.Config(), client.DefaultOptions())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	address, _ := serve(l.t, c)
	l.address, l.tab = base(address), l.browser.open(l.t, desktop)
	l.tab.visit(address)
	l.watch("the status", `document.querySelector('.headline')`)
}

// watch waits until an expression about the status is true.
func (l *live) watch(what, expression string) {
	l.t.Helper()
	l.tab.visit(l.address + "/")
	defer func() { // shows why
		if l.t.Failed() {
			l.tab.show(desktop)
			l.tab.keep("live-failed")
		}
	}()
	l.tab.until(what, expression)
}

// shoot takes pictures of views: for a desktop and a phone, light and dark.
func (l *live) shoot(state string, paths ...string) {
	l.t.Helper()
	for _, shown := range []settings{desktop, {1280, 900, "dark"}, {360, 740, "light"}, {360, 740, "dark"}} {
		l.tab.show(shown)
		for _, path := range paths {
			l.tab.visit(l.address + path)
			if state == "busy" && path == "/" && shown.width == desktop.width {
				l.tab.keepForDocs(map[string]string{"light": "page.png", "dark": "page-dark.png"}[shown.scheme])
			}
			l.tab.until("the script runs", `document.getElementById('state').textContent !== ''`)
			if path == "/tail" {
				time.Sleep(2 * time.Second) // the picture is to have what comes
			}
			name := fmt.Sprintf("live-%s-%s-%d-%s", state, viewOf(path), shown.width, shown.scheme)
			l.tab.wantReadable(name)
			l.tab.keepTop(name, shown.width)
		}
	}
}

// keepForDocs keeps the picture of the README.
func (b *tab) keepForDocs(name string) {
	b.t.Helper()
	b.until("the rates", `document.querySelector('[data-key=sink] .lead data').textContent.includes('/s') && document.body.classList.contains('live')`)
	if err := os.WriteFile(filepath.Join(*screenshots, name), b.screenshot(1280, 1100), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// maxHeight of a picture is enough to look at.
const maxHeight = 3200

func (b *tab) keepTop(name string, width int) {
	b.t.Helper()
	height := 0
	b.eval(`document.documentElement.scrollHeight`, &height)
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), b.screenshot(width, min(height, maxHeight)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func viewOf(path string) string {
	path, query, _ := strings.Cut(strings.Trim(path, "/"), "?")
	if path == "" {
		path = "status"
	}
	key, _, _ := strings.Cut(query, "&")
	return path + strings.NewReplacer("=", "-", "kind", "-kind", "by", "-by", "rule", "-rule").Replace(key)
}
