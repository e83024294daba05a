package intake_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// leading is the Forwarder of a replica that leads, and to which another one forwards.
type leading struct{ intake.Forwarder }

func (leading) IsPeer(context.Context, string) (bool, error) { return true, nil }
func (leading) Begin() intake.Forwarding                     { return handledHere{} }

type handledHere struct{}

func (handledHere) AwaitLeader(context.Context) error { return nil }
func (handledHere) End()                              {}

func (handledHere) Handle(_ context.Context, w http.ResponseWriter, r *intake.Received) error {
	if !r.Handle(w, intake.Term{}) {
		return errors.New("the term has ended")
	}
	return nil
}

// inSession has a leader handle requests as another replica forwards them, each in a session of its own, with
// further headers.
func inSession(t testing.TB, leader http.Handler, further http.Header) http.Handler {
	t.Helper()
	server := httptest.NewServer(leader)
	t.Cleanup(server.Close)
	caller := &user.DefaultInfo{Name: "system:node:node-17", Groups: []string{"system:nodes"}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn := must(net.Dial("tcp", server.Listener.Addr().String()))
		defer func() { _ = conn.Close() }()
		equal(t, "error", conn.SetDeadline(time.Now().Add(time.Minute)), nil)
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer token\r\n%s: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n",
			intake.ForwardingPath, intake.AssertedUserHeader, must(intake.EncodeUser(caller)), intake.ForwardingProtocol)
		equal(t, "error", err, nil)
		in := bufio.NewReader(conn)
		response := must(http.ReadResponse(in, nil))
		equal(t, "code", response.StatusCode, http.StatusSwitchingProtocols)

		header := req.Header.Clone()
		header.Set("Audit-Id", "of-the-standby")
		maps.Copy(header, further)
		data, ok := frame.AppendRequest(nil, 1, &frame.Forwarded{
			Timeout: time.Minute, Method: req.Method, URI: req.RequestURI, Host: req.Host, User: caller, Header: header, Body: must(io.ReadAll(req.Body)),
		}, func(string) bool { return true })
		equal(t, "it is short enough", ok, true)
		_, err = conn.Write(data)
		equal(t, "error", err, nil)
		var answer []byte
		for frames := frame.NewReader(in); ; {
			kind, _, payload, err := frames.Next()
			if err != nil || kind != frame.Answer && kind != frame.Ping {
				t.Fatalf("%s %s: frame %d, %v", req.Method, req.URL, kind, err)
			}
			if kind == frame.Answer {
				if answer = append(answer, payload[1:]...); payload[0] == 1 {
					break
				}
			}
		}
		code, answered, body, err := frame.DecodeAnswer(answer)
		equal(t, "error", err, nil)
		equal(t, "Audit-Id", answered.Get("Audit-Id"), "of-the-standby")
		maps.Copy(w.Header(), answered)
		w.WriteHeader(code)
		_, _ = w.Write(body)
	})
}

// What another replica forwards takes a fast path too, and is answered as on the generic one, which it takes with any
// header that is not usual.
func TestForwardedRequestsAreAnsweredAlikeOnBothPaths(t *testing.T) {
	p := bothPaths(t, written, withServer(func(o *intake.ServerOptions) { o.Forwarder = leading{} }))
	p.fast.Handler = inSession(t, p.fast.Bare, nil)
	p.generic.Handler = inSession(t, p.generic.Bare, http.Header{"Unusual": {"true"}})
	requests := usualRequests()
	for _, body := range unusualBodies() {
		for _, path := range []string{coreEvents, newEvents} {
			requests = append(requests, usualRequest{method: http.MethodPost, path: path, contentType: jsonType, body: []byte(body)})
		}
	}
	requests = append(requests,
		usualRequest{method: http.MethodPost, path: coreEvents + "?fieldValidation=Strict", contentType: jsonType, body: encode(classic("b", 1), occurrence.CoreV1, jsonType)},
		usualRequest{method: http.MethodGet, path: coreEvents, contentType: jsonType},
	)
	for _, r := range requests {
		p.compare(t, r)
	}
}
