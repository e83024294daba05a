package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/request"
	"github.com/eventd/eventd/test/stored"
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
			if _, err := post(t.Context(), c, namespace, fmt.Sprintf("posted.%d.%d", i, n), "shared"); err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
		}
	})
	for _, e := range both {
		e.wantWritten(clients * each)
	}
	both[0].wantStored(namespace, stored.Counts[string]{"shared": int64(len(both)) * clients * each})
	for _, e := range both {
		e.Terminate(t)
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
	if _, err := post(t.Context(), events, namespace, "before", "shared"); err != nil {
		t.Fatal(err)
	}
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}

	body, err := json.Marshal(replica.Event(namespace, "stranger", "shared"))
	if err != nil {
		t.Fatal(err)
	}
	url := e.URL("/api/v1/namespaces/" + namespace + "/events")
	answer := request.Do(t.Context(), e.Client(t, stranger), http.MethodPost, url, string(body))
	if answer.Code != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("a caller that cannot be looked up is answered %v, Retry-After %q", answer, answer.Header.Get("Retry-After"))
	}
	// This one's token and rights have just been looked up.
	accepted := make(chan error, 1)
	go func() {
		ctx, cancel := await.Context(t)
		defer cancel()
		_, err := post(ctx, events, namespace, "meanwhile", "shared")
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
	e.wantStored(namespace, stored.Counts[string]{"shared": 2})
	e.Terminate(t)
	if accounts, err := e.FinalAccounts(); err != nil || accounts["recorded"] != 2 || accounts["created"] != 1 || accounts["merged"] != 1 {
		t.Errorf("final accounts %v (%v)", accounts, err)
	}
}
