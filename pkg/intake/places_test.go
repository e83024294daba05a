package intake

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/occurrence"
)

// A request has one place among those in flight, of whoever its caller is known to be:
// first by its address or its credentials, and from its authentication on as its user.
func TestRequestHasOnePlaceAtATime(t *testing.T) {
	jane, joe := occurrence.TenantOf("jane"), occurrence.TenantOf("joe")
	asserted, err := encodeUser(&user.DefaultInfo{Name: "jane"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		known    string // whose the credentials were, "" if they are not known
		asserted string
		full     flow  // who has no more places among the known, if not zero
		first    *flow // of the known where the request begins; nil among strangers
		code     int
	}{
		"of a stranger":                         {code: 200},
		"of a known caller":                     {known: jane, first: &flow{jane, "ns"}, code: 200},
		"of one who was another":                {known: joe, first: &flow{joe, "ns"}, code: 200},
		"of a replica":                          {known: replicas, asserted: asserted, first: &flow{jane, "ns"}, code: 200},
		"of a replica that asserts nobody":      {known: replicas, asserted: "!", code: 200},
		"of a stranger who has too many":        {full: flow{jane, "ns"}, code: 429},
		"of a known caller who has too many":    {known: jane, full: flow{jane, "ns"}, code: 429},
		"of one who was another, with too many": {known: joe, first: &flow{joe, "ns"}, full: flow{jane, "ns"}, code: 429},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIntake(t)
			c, err := newFlowControl(&ServerOptions{Intake: i, ReviewTTL: time.Second, MaxInFlight: 10})
			if err != nil {
				t.Fatal(err)
			}
			filled := int64(0)
			for test.full.tenant != "" && c.requests.acquire(test.full, 1) {
				filled++
			}
			own := credential{1}
			if test.known != "" {
				c.callers.known.accept(own, test.known, time.Now())
			}
			served := false
			ctx := withCredential(request.WithRequestInfo(t.Context(), &request.RequestInfo{Namespace: "ns"}), own)
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			if test.asserted != "" {
				req.Header.Set(assertedUser, test.asserted)
			}
			w := httptest.NewRecorder()
			c.withPlace(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				strangers, known := int64(1), filled
				if test.first != nil {
					strangers, known = 0, filled+1
					if c.requests.flows[*test.first] != 1 {
						t.Errorf("it begins among %v", c.requests.flows)
					}
				}
				if c.strangers.inUse() != strangers || c.requests.inUse() != known {
					t.Errorf("%d of strangers and %d others are in flight", c.strangers.inUse(), c.requests.inUse())
				}
				c.withFlow(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					served = true
					if c.strangers.inUse() != 0 || c.requests.inUse() != filled+1 || c.requests.flows[flow{jane, "ns"}] != 1 {
						t.Errorf("%d of strangers and %v are in flight while it is handled", c.strangers.inUse(), c.requests.flows)
					}
				})).ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})))
			})).ServeHTTP(w, req)
			if w.Code != test.code || served != (test.code == 200) {
				t.Errorf("answered %d, handled %t: %s", w.Code, served, w.Body)
			}
			if c.strangers.inUse() != 0 || c.requests.inUse() != filled {
				t.Errorf("%d of strangers and %d others are in flight when it has been answered", c.strangers.inUse(), c.requests.inUse())
			}
			if got := testutil.ToFloat64(i.metrics.refused.WithLabelValues(refusedShare)); (got == 1) != (test.code == 429) {
				t.Errorf("%v were counted as refused", got)
			}
		})
	}
}
