package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/await"
)

// running is an eventd in this process.
type running struct {
	endpoint string
	config   *rest.Config // of the user
	signal   context.CancelCauseFunc
	result   chan error
}

// startRunning returns when the eventd serves.
func startRunning(t *testing.T, a *apiserver, more ...string) *running {
	t.Helper()
	r := beginRunning(t, a, more...)
	r.awaitServing(t)
	return r
}

// beginRunning returns at once.
func beginRunning(t *testing.T, a *apiserver, more ...string) *running {
	t.Helper()
	r := &running{endpoint: filepath.Join(t.TempDir(), "endpoint"), result: make(chan error, 1)}
	o, err := optionsOf(append(a.flags(more...), "--endpoint-kubeconfig="+r.endpoint)...)
	if err != nil {
		t.Fatal(err)
	}
	o.SecureServing.ServerCert.FixtureDirectory = certificates
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	r.signal = cancel
	go func() { r.result <- Run(ctx, o, a.config()) }()
	t.Cleanup(func() { cancel(errors.New("end of the test")) })
	return r
}

func (r *running) awaitServing(t *testing.T) {
	t.Helper()
	await.Until(t, "it serves", func() bool {
		_, err := os.Stat(r.endpoint)
		return err == nil
	})
	var err error
	if r.config, err = clientcmd.BuildConfigFromFlags("", r.endpoint); err != nil {
		t.Fatal(err)
	}
	r.config.BearerToken = goodToken
}

// terminate ends the eventd in order.
func (r *running) terminate(t *testing.T) {
	t.Helper()
	r.signal(errors.New("terminated"))
	if err := receive(t, "the end", r.result); err != nil {
		t.Errorf("the end is: %v", err)
	}
}

// create posts an Event about a Pod.
func create(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, await.Timeout)
	defer cancel()
	_, err := client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web"},
		Reason:         "Started", Message: "Container started", Type: corev1.EventTypeNormal, Count: 1,
		Source: corev1.EventSource{Component: "tester"},
	}, metav1.CreateOptions{})
	return err
}

// post posts an Event, and returns when its write has reached the apiserver. The channel
// receives the answer.
func (a *apiserver) post(t *testing.T, config *rest.Config) <-chan error {
	t.Helper()
	client, answer := kubernetes.NewForConfigOrDie(config), make(chan error, 1)
	go func() { answer <- create(t.Context(), client, "shop", "web.1") }()
	receive(t, "the write reaches the apiserver", a.creating)
	return answer
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(await.Timeout):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

// get makes one request on a connection of its own.
func get(t *testing.T, config *rest.Config, path string) (status int, body string, err error) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// wantAnswer checks the status of an answer, and a text in it.
func wantAnswer(t *testing.T, config *rest.Config, path string, status int, text string) {
	t.Helper()
	if err := answers(t, config, path, status, text); err != nil {
		t.Error(err)
	}
}

// awaitAnswer polls until there is an answer that wantAnswer accepts.
func awaitAnswer(t *testing.T, config *rest.Config, path string, status int, text string) {
	t.Helper()
	err := await.Success(t.Context(), await.Timeout, func() error { return answers(t, config, path, status, text) })
	if err != nil {
		t.Fatal(err)
	}
}

func answers(t *testing.T, config *rest.Config, path string, status int, text string) error {
	got, body, err := get(t, config, path)
	if err != nil || got != status || !strings.Contains(body, text) {
		return fmt.Errorf("%s: %d %s (%w), want %d with %q", path, got, body, err, status, text)
	}
	return nil
}

func TestSignalLetsAcceptedRequestsFinish(t *testing.T) {
	a := startAPIServer(t)
	r := startRunning(t, a)
	answer := a.post(t, r.config)
	r.signal(errors.New("terminated"))
	await.Until(t, "the listener is closed", func() bool {
		_, _, err := get(t, r.config, "/readyz")
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	select {
	case err := <-r.result:
		t.Fatalf("ended with a request in flight: %v", err)
	case err := <-answer:
		t.Fatalf("answered before the write was committed: %v", err)
	default:
	}
	close(a.release)
	if err := receive(t, "the answer", answer); err != nil {
		t.Errorf("the request that was in flight: %v", err)
	}
	if err := receive(t, "the end", r.result); err != nil {
		t.Errorf("everything was written, but the end is: %v", err)
	}
	if _, err := os.Stat(r.endpoint); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the endpoint kubeconfig is still there: %v", err)
	}
}

func TestProbesAreOpenAndMetricsAreNot(t *testing.T) {
	r := startRunning(t, startAPIServer(t))
	nobody := rest.AnonymousClientConfig(r.config)
	for _, probe := range []string{"/livez", "/readyz", "/healthz"} {
		wantAnswer(t, nobody, probe, http.StatusOK, "ok")
	}
	wantAnswer(t, nobody, "/metrics", http.StatusUnauthorized, "")
	_, text, err := get(t, r.config, "/metrics")
	for _, want := range []string{"eventd_build_info{", "go_goroutines ", "eventd_occurrences_recorded_total 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics has no %q (%v):\n%s", want, err, text)
		}
	}
	// Names follow the conventions, and all have a HELP text.
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("/metrics: %v, %v", problems, err)
	}
	r.terminate(t)
}
