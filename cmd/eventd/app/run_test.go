package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// running is an eventd in this process.
type running struct {
	endpoint string
	config   *rest.Config
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
	r := &running{
		endpoint: filepath.Join(t.TempDir(), "endpoint"),
		result:   make(chan error, 1),
	}
	o := a.options(t, r.endpoint, more...)
	cluster, err := o.clusterConfig()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	r.signal = cancel
	go func() { r.result <- Run(ctx, o, cluster) }()
	t.Cleanup(func() { cancel(errors.New("end of the test")) })
	return r
}

func (r *running) awaitServing(t *testing.T) {
	t.Helper()
	awaitFile(t, r.endpoint)
	var err error
	if r.config, err = clientcmd.BuildConfigFromFlags("", r.endpoint); err != nil {
		t.Fatal(err)
	}
	r.config.BearerToken = goodToken
}

// patience is how long tests wait, also on a machine under load.
const patience = 30 * time.Second

// awaitFile waits for a file that another process or goroutine creates.
func awaitFile(t *testing.T, file string) {
	t.Helper()
	eventually(t, file+" appears", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
}

// eventually polls for a condition.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return happened(), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// post posts an Event and sends the answer to a channel.
func post(t *testing.T, config *rest.Config) <-chan error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Events("shop").Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "web.1", Namespace: "shop"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"},
			Reason:         "Started", Message: "Container started", Type: corev1.EventTypeNormal, Count: 1,
		}, metav1.CreateOptions{})
		answer <- err
	}()
	return answer
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

func TestSignalLetsAcceptedRequestsFinish(t *testing.T) {
	a := startAPIServer(t)
	r := startRunning(t, a)
	answer := post(t, r.config)
	receive(t, "the write reaches the apiserver", a.creating)

	r.signal(errors.New("terminated"))
	eventually(t, "the listener is closed", func() bool {
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

// get makes one request on a connection of its own.
func get(t *testing.T, config *rest.Config, path string) (int, string, error) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if config.BearerToken != "" {
		req.Header.Set("Authorization", "Bearer "+config.BearerToken)
	}
	response, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func TestRunReturnsWhatWasNotWritten(t *testing.T) {
	a := startAPIServer(t)
	r := startRunning(t, a, "--shutdown-grace-period=2s")
	answer := post(t, r.config)
	receive(t, "the write reaches the apiserver", a.creating)

	began := time.Now()
	r.signal(errors.New("terminated"))
	err := receive(t, "the end", r.result)
	if err == nil || !strings.Contains(err.Error(), "1 occurrences of 1 series were not written") {
		t.Errorf("the end is: %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a grace period of 2s took %s", took)
	}
	if err := receive(t, "the answer", answer); err == nil {
		t.Error("the request was answered as if its Event had been written")
	}
}

func TestProbesAreOpenAndMetricsAreNot(t *testing.T) {
	a := startAPIServer(t)
	r := startRunning(t, a)
	nobody := rest.AnonymousClientConfig(r.config)
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/readyz": http.StatusOK, "/healthz": http.StatusOK,
		"/metrics": http.StatusUnauthorized,
	} {
		if got, body, err := get(t, nobody, path); err != nil || got != want {
			t.Errorf("%s without credentials: %d %s %v, want %d", path, got, body, err, want)
		}
	}
	status, body, err := get(t, r.config, "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics: %d %s %v", status, body, err)
	}
	for _, want := range []string{"eventd_build_info{", "go_goroutines ", "eventd_occurrences_recorded_total 0"} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics does not have %s", want)
		}
	}
	r.signal(errors.New("terminated"))
	if err := receive(t, "the end", r.result); err != nil {
		t.Error(err)
	}
}

func TestTakenPortIsAnErrorAtTheStart(t *testing.T) {
	a := startAPIServer(t)
	r := startRunning(t, a)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.config.Host, "https://"), ":")
	o := a.options(t, filepath.Join(t.TempDir(), "endpoint"), "--secure-port="+port)
	cluster, err := o.clusterConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o, cluster); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("started on a port that is taken: %v", err)
	}
	r.signal(errors.New("terminated"))
	if err := receive(t, "the end", r.result); err != nil {
		t.Error(err)
	}
}
