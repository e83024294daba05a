package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// Counts are exact with any number of writers.
func TestTwoEventdsCountTheSameSeries(t *testing.T) {
	const clients, each = 10, 20
	shared := testenv.Shared(t)
	namespace := shared.Namespace(t)
	credentials := replica.Reporter(t, shared, namespace)
	both := []*eventd{startEventd(t), startEventd(t)}
	group(clients*len(both), func(i int) {
		c := clientset(t, both[i%len(both)].Config(credentials)).CoreV1().Events(namespace)
		for n := range each {
			if _, err := c.Create(t.Context(), plain(namespace, fmt.Sprintf("posted.%d.%d", i, n), "shared"), metav1.CreateOptions{}); err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
		}
	})
	for _, e := range both {
		e.wantWritten(clients * each)
	}
	wantStored(t, shared, namespace, map[string]int{"shared": len(both) * clients * each})
	for _, e := range both {
		e.terminate()
	}
}

// What was accepted while the apiserver is away is written when it is back. Callers
// that cannot be reviewed meanwhile are told to retry, and are not refused.
func TestApiserverIsAwayForAWhile(t *testing.T) {
	c := testenv.StartForTest(t, testenv.Options{})
	namespace := c.Namespace(t)
	credentials := replica.Reporter(t, c, namespace)
	stranger := c.ServiceAccount(t, namespace, "stranger")
	e := startEventdFor(t, c)
	events := clientset(t, e.Config(credentials)).CoreV1().Events(namespace)
	if _, err := events.Create(t.Context(), plain(namespace, "before", "shared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}

	answer := post(t, e.Config(stranger), namespace, "stranger")
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("a caller that cannot be looked up is answered %s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
	}
	// This one's token and rights have just been looked up.
	accepted := make(chan error, 1)
	go func() {
		ctx, cancel := await.Context(t)
		defer cancel()
		_, err := events.Create(ctx, plain(namespace, "meanwhile", "shared"), metav1.CreateOptions{})
		accepted <- err
	}()
	await.Until(t, "a failed write", func() bool {
		select {
		case err := <-accepted:
			t.Fatalf("answered while the apiserver is away: %v", err)
		default:
		}
		return e.counters().Sum("eventd_sink_requests_failed_total", "class=unreachable") > 0
	})
	up, cancel := await.Context(t)
	defer cancel()
	if err := c.Up(up); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-accepted:
		if err != nil {
			t.Errorf("what was accepted meanwhile: %v", err)
		}
	case <-time.After(await.Timeout):
		t.Fatal("what was accepted meanwhile is not written")
	}
	wantStored(t, c, namespace, map[string]int{"shared": 2})
	e.terminate()
	if accounts := e.finalAccounts(); accounts["recorded"] != 2 || accounts["created"] != 1 || accounts["merged"] != 1 {
		t.Errorf("final accounts %v", accounts)
	}
}

// post makes one request that is not retried, and returns its answer.
func post(t *testing.T, config *rest.Config, namespace, name string) *http.Response {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(plain(namespace, name, "shared"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := await.Context(t)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		config.Host+"/api/v1/namespaces/"+namespace+"/events", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer
}
