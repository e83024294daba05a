package intake

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/relay/frame"
)

// The leader handles what the standby has authorized: both read the same report from it. Other requests are
// not forwarded in a session, and none of them may become a report: the URL "h:" has the path "" at the standby, and
// "/" at the leader.
func FuzzForwardedRequestIsThatWhichWasAuthorized(f *testing.F) {
	for _, target := range []string{
		"/api/v1/namespaces/a/events", "/apis/events.k8s.io/v1/namespaces/a/events/b?timeout=1s#c", "//api/v1/namespaces/a/events",
		"http://h/api/v1/namespaces/a/events", "/api/v1/namespaces/a%2Fb/events/%2e%2e", "/api/v1/namespaces/a/events/b#c?d", "*", "http:api", "h:",
	} {
		f.Add(http.MethodPost, target)
	}
	s := &forwardingSession{}
	f.Fuzz(func(t *testing.T, method, target string) {
		if strings.ContainsAny(method+target, "\r\n") {
			return
		}
		authorized, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			return
		}
		buf, ok := frame.AppendRequest(nil, 1, &frame.Forwarded{
			Method: authorized.Method, URI: authorized.URL.RequestURI(), User: &user.DefaultInfo{Name: "caller"},
		}, nil)
		if !ok {
			return
		}
		_, _, payload, err := frame.NewReader(strings.NewReader(string(buf))).Next()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := frame.DecodeRequest(payload)
		if err != nil {
			t.Fatal(err)
		}
		handled, err := s.request(context.Background(), decoded)
		if err != nil {
			return // answered 400
		}
		want, wantErr := newResolver().NewRequestInfo(authorized)
		got, gotErr := newResolver().NewRequestInfo(handled)
		if wantErr == nil && gotErr == nil && !want.IsResourceRequest && !got.IsResourceRequest {
			return
		}
		if diff := cmp.Diff([]any{want, wantErr == nil, authorized.URL.RawQuery}, []any{got, gotErr == nil, handled.URL.RawQuery}); diff != "" {
			t.Errorf("-authorized +handled:\n%s", diff)
		}
		if caller, ok := request.UserFrom(handled.Context()); !ok || caller.GetName() != "caller" {
			t.Errorf("handled for %v", caller)
		}
	})
}
