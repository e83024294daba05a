package page_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/test/pagetest"
)

// badges returns what the cards say of their health.
func badges(t *testing.T, body string) (all []string) {
	t.Helper()
	for n := range parse(t, body) {
		if strings.HasPrefix(attr(n, "class"), "health") {
			var text strings.Builder
			for child := range n.Descendants() {
				text.WriteString(child.Data)
			}
			for _, word := range []string{"unknown", "healthy", "problem", "silent", "ready", "waiting", "standby"} {
				if strings.Contains(text.String(), word) {
					all = append(all, word)
					break
				}
			}
		}
	}
	return all
}

// Without an answer the last figures stay, and nothing is said to be well: what was known ends with them.
func TestAStatusThatIsNotAnsweredIsUnknown(t *testing.T) {
	gone := errors.New("connecting to eventd: connection refused")
	for name, test := range map[string]struct {
		answer func() (any, error)
		code   int
		want   []string
	}{
		"the leader is dead": {func() (any, error) { return nil, gone }, http.StatusBadGateway, []string{"eventd cannot be reached.", "connection refused", "kubectl -n events get pods"}},
		"a standby does not reach it": {func() (any, error) {
			return nil, apierrors.NewServiceUnavailable("the leader did not answer the query")
		},
			http.StatusServiceUnavailable, []string{"eventd cannot answer this now.", "the leader did not answer the query"}},
		"it is silent": {func() (any, error) { return nil, context.DeadlineExceeded }, http.StatusGatewayTimeout, []string{"eventd has not answered in time."}},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			b := pagetest.Busy(at)
			v := serveWith(t, page.Options{Backend: b, Advice: func(err error) string {
				if errors.Is(err, gone) {
					return "Is a replica ready? kubectl -n events get pods"
				}
				return ""
			}})
			b.Set("status", pagetest.BusyStatus(at))
			_, before := v.get(t, "/")
			wantWords(t, before, "All is well.")
			b.SetFunc("status", test.answer)
			code, body := v.get(t, "/")
			if code != test.code {
				t.Errorf("answered %d, not %d", code, test.code)
			}
			wantWords(t, body, append(test.want, "Unknown since 03:04:05 UTC: ")...)
			all := badges(t, body)
			for _, said := range all {
				if said != "unknown" && said != "silent" {
					t.Errorf("it says %q of %q", said, all)
					break
				}
			}
			if len(all) < len(badges(t, before)) || strings.Contains(body, "All is well") || strings.Contains(words(t, body), "leads for") {
				t.Errorf("%d badges, not %d: %s", len(all), len(badges(t, before)), words(t, body))
			}
			if got, want := len(figuresIn(t, body)), len(figuresIn(t, before)); got != want {
				t.Errorf("%d figures of %d are left", got, want)
			}
			b.Set("status", pagetest.BusyStatus(at))
			_, after := v.get(t, "/")
			wantWords(t, after, "All is well.")
		})
	}
}

// Who may no longer see the status does not see the last one.
func TestAStatusThatIsRefusedIsNotKept(t *testing.T) {
	b := pagetest.Busy(time.Now())
	v := serve(t, b)
	v.get(t, "/")
	b.Set("status", apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil))
	code, body := v.get(t, "/")
	if wantWords(t, body, "You may not see this."); code != http.StatusForbidden || len(figuresIn(t, body)) > 0 {
		t.Errorf("answered %d with figures", code)
	}
	b.Set("status", errors.New("gone"))
	if _, body := v.get(t, "/"); len(figuresIn(t, body)) > 0 {
		t.Error("the last status is kept over a refusal")
	}
}

// A standby has stations too, which do nothing: it says nothing of those that a leader will have.
func TestWithoutALeaderTheWayInIsUnknown(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := pagetest.Busy(at)
	b.Set("status", pagetest.BusyStatus(at))
	v := serve(t, b)
	v.get(t, "/")
	standby := pagetest.BusyStatus(at.Add(time.Minute))
	standby.Leader, standby.Replica.Role, standby.Followers = nil, "standby", nil
	b.Set("status", standby)
	_, body := v.get(t, "/")
	wantWords(t, body, "No replica leads (one did at 03:04:05 UTC): nothing is recorded or written until one does.")
	unknown := map[string]bool{}
	for n := range parse(t, body) {
		key := attr(n, "data-key")
		if key == "" || !strings.HasPrefix(attr(n, "class"), "station") {
			continue
		}
		for child := range n.Descendants() {
			if strings.HasPrefix(attr(child, "class"), "health") && child.LastChild != nil && child.LastChild.Data == "unknown" {
				unknown[key] = true
			}
		}
	}
	for _, key := range []string{"intake", "broadcaster", "correlator", "sink", "apiserver", "receiver/loki"} {
		if !unknown[key] {
			t.Errorf("%s is not unknown, but %v are", key, unknown)
		}
	}
	if unknown["observer"] || unknown["history"] {
		t.Error("a standby knows what it observes")
	}
}
