package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := received(ctx)
	for i := range 200 {
		out.received.Header.Set(fmt.Sprint("X-", i), "")
	}
	out.received.Header.Set("Connection", strings.Repeat("aa,", listed)) // each is made canonical
	for what, encode := range map[string]func(){
		"a frame": func() { _, _ = out.appendFrame(ctx, nil, 1) },
		"HTTP/2":  func() { _, _ = out.forwardedHeader() },
	} {
		if n := testing.AllocsPerRun(1, encode); n > 2*listed {
			t.Errorf("%s: %v allocations for %d names", what, n, listed)
		}
	}
}
