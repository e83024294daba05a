package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// received is a request of a client.
func received(ctx context.Context) *outgoing {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	return &outgoing{url: *req.URL, method: req.Method, received: req, caller: &user.DefaultInfo{Name: "a"}}
}

// A client may have hundreds of headers, and list thousands of names in Connection.
func TestEncodingARequestIsLinearInItsHeaders(t *testing.T) {
	const listed = 10_000
	out := received(t.Context())
	for i := range 200 {
		out.received.Header.Set(fmt.Sprint("X-", i), "")
	}
	out.received.Header.Set("Connection", strings.Repeat("aa,", listed)) // each is made canonical
	if n := testing.AllocsPerRun(1, func() { _, _ = out.forwardedHeader() }); n > 2*listed {
		t.Errorf("%v allocations for %d names", n, listed)
	}
}
