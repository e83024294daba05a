package intake

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/shares"
)

// writer calls a function when the response is written.
type writer struct {
	http.ResponseWriter
	written func()
}

func (w writer) Write(p []byte) (int, error) {
	w.written()
	return w.ResponseWriter.Write(p)
}

// The responses to users of a front proxy, which has one address, count as those of each user.
func TestUnreadResponsesThroughAFrontProxyAreThoseOfTheirUser(t *testing.T) {
	c, unread := testFlowControl(), newUnreadResponses(newIntake())
	unread.queries = shares.New(maxUnreadQueryBytes)
	for _, within := range []*shares.Shares{unread.shares, unread.queries} {
		handler := c.withCallerFlow(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			callOf(req.Context()).query.Store(within == unread.queries)
			_, _ = w.Write([]byte("seen"))
		}))
		authenticated := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			handler.ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: req.Header.Get(proxiedUserHeader)})))
		})
		for _, name := range []string{"jane", "joe"} {
			req, written := requestWith("", "front-proxy"), false
			req.Header.Set(proxiedUserHeader, name)
			unread.buffered(c.withInFlightLimit(authenticated)).ServeHTTP(writer{httptest.NewRecorder(), func() {
				written = true
				if n := within.UsedBy(flow{Tenant: name}); n == 0 || n != within.InUse() {
					t.Errorf("%d of %d unread bytes are those of %s", n, within.InUse(), name)
				}
			}}, req)
			equal(t, "written", written, true)
		}
	}
}
