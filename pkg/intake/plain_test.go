package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// usualRequests are requests of client-go, each after the one before it.
func usualRequests() []usualRequest {
	var all []usualRequest
	for _, accept := range []string{"", "application/json, */*", "application/vnd.kubernetes.protobuf, */*", "application/vnd.kubernetes.protobuf,application/json"} {
		for _, mediaType := range []string{jsonType, protoType} {
			name := fmt.Sprintf("a.%d", len(all))
			post := func(path string, api occurrence.API, event *corev1.Event) {
				event.Name = name
				all = append(all, usualRequest{method: http.MethodPost, path: path, contentType: mediaType, accept: accept, body: encode(event, api, mediaType)})
			}
			patch := func(path, body string) {
				all = append(all, usualRequest{method: http.MethodPatch, path: path + "/" + name, contentType: strategicType, accept: accept, body: []byte(body)})
			}
			event := classic("", 1)
			event.Message, event.Source.Component = "a <b> & \"c\"\n\u2028 ü", "kubelet"
			event.ReportingController, event.ReportingInstance = "kubelet", "node-1"
			post(coreEvents, occurrence.CoreV1, event)
			post(coreEvents, occurrence.CoreV1, event) // exists
			patch(coreEvents, `{"count":2,"lastTimestamp":"2026-11-23T10:00:00Z"}`)
			patch(coreEvents, `{"count":2,"lastTimestamp":"2026-11-23T10:00:00Z"}`) // changes nothing
			patch(coreEvents, `{"count":7,"lastTimestamp":"2026-11-23T10:00:01Z","message":"changed \u003c"}`)
			name += "x"
			patch(coreEvents, `{"count":2}`) // not found
			post(newEvents, occurrence.EventsV1, newStyle(""))
			patch(newEvents, `{"series":{"count":2,"lastObservedTime":"2026-11-23T10:00:00.123456Z"}}`)
			patch(newEvents, `{"series":{"count":3}}`)
			patch(newEvents, `{"series":{"count":1}}`) // invalid
		}
	}
	return all
}

func TestRequestsOfClientGoArePlain(t *testing.T) {
	p := bothHandlers(t, written)
	for _, r := range usualRequests() {
		if !p.plain.Intake.IsPlain(apiOfPath(r.path), r.contentType, r.body) {
			t.Errorf("%s %s is not plain: %q", r.method, r.path, r.body)
		}
		p.compare(t, r)
	}
}

func apiOfPath(path string) occurrence.API {
	if strings.HasPrefix(path, "/apis/") {
		return occurrence.EventsV1
	}
	return occurrence.CoreV1
}

// FuzzPlain sends any body and path as client-go would, to both handlers.
func FuzzPlain(f *testing.F) {
	for _, r := range usualRequests() {
		f.Add(r.method == http.MethodPatch, r.contentType == protoType, r.path, r.accept, byte(0), r.body)
	}
	for i, body := range unusualBodies() {
		f.Add(false, false, coreEvents, jsonType, byte(i), []byte(body))
		f.Add(false, false, newEvents, "", byte(i), []byte(body))
	}
	inProtobuf := string(encode(classic("b", 1), occurrence.CoreV1, protoType))
	for _, body := range []string{inProtobuf + "x", inProtobuf[:len(inProtobuf)-5], inProtobuf + inProtobuf[4:], shortest(100), "k8s\x00", "k8s"} {
		f.Add(false, true, coreEvents, protoType, byte(0), []byte(body))
	}
	for _, body := range []string{
		`{}`, `{"count":2}`, `{"count":2,"count":3}`, `{"count":null}`, `{"lastTimestamp":null}`, `{"message":""}`, `{"count":0}`, `{"series":{}}`,
		`{"series":{"count":2}}`, `{"series":null}`, `{"series":{"lastObservedTime":null}}`, `{"series":{"count":2,"lastObservedTime":"2026-11-23T10:00:00.123456Z"}}`,
		`{"$patch":"delete"}`, `{"metadata":{"resourceVersion":"1"}}`, `{"reason":"other"}`, `{"nonsense":1}`, `{"count":2}x`, `{"message":"\ud800"}`, `{"series":{"count":}`,
		`{"count":3,"message":null}`, `{"message":"other","count":null}`, `{"count":3,"series":null}`, `{"series":{"count":3,"lastObservedTime":null}}`,
	} {
		for i := range byte(5) {
			f.Add(true, false, coreEvents+"/known", jsonType, i, []byte(body))
			f.Add(true, false, newEvents+"/known", protoType, i, []byte(body))
			f.Add(true, false, coreEvents+"/known-too", jsonType, i, []byte(body))
		}
	}
	f.Add(false, false, coreEvents, "image/png", byte(0), encode(classic("b", 1), occurrence.CoreV1, jsonType))
	for _, path := range []string{coreEvents + "/", "/" + coreEvents, coreEvents + "/a/b", "/api/v1/namespaces/ns/events/..", "/api/v1/namespaces/other/events", coreEvents + "?timeout=1s"} {
		f.Add(false, false, path, jsonType, byte(0), encode(classic("b", 1), occurrence.CoreV1, jsonType))
	}
	outcomes := []func() *fakePipeline{
		written,
		func() *fakePipeline { p := written(); p.Deferring = true; return p },
		func() *fakePipeline { return settled(dropped(occurrence.QueueFull, nil)) },
		func() *fakePipeline { return settled(uncertain) },
		func() *fakePipeline { return settled(stored(occurrence.Replayed, 1)) },
	}
	f.Fuzz(func(t *testing.T, patch, inProtobuf bool, path, accept string, outcome byte, body []byte) {
		if strings.ContainsAny(accept, "\r\n\x00") {
			return
		}
		r := usualRequest{method: http.MethodPost, path: path, contentType: jsonType, accept: accept, body: body}
		if inProtobuf {
			r.contentType = protoType
		}
		if patch {
			r.method, r.contentType = http.MethodPatch, strategicType
		}
		p := bothHandlers(t, written)
		p.compare(t, usualRequest{method: http.MethodPost, path: coreEvents, contentType: jsonType, body: encode(classic("known", 1), occurrence.CoreV1, jsonType)})
		p.compare(t, usualRequest{method: http.MethodPost, path: newEvents, contentType: protoType, body: encode(newStyle("known-too"), occurrence.EventsV1, protoType)})
		for _, s := range []*server{p.plain, p.generic} {
			becomes := outcomes[int(outcome)%len(outcomes)]()
			s.Pipeline.Becomes(becomes)
			s.Pipeline.WriteLater(becomes.Deferring)
		}
		generated := bytes.Contains(body, []byte("generateName")) || bytes.Contains(body, []byte("-\x1a"))
		if generated && !patch {
			return // another name each time
		}
		p.compare(t, r)
		p.compare(t, r) // again
	})
}

// A body that does not arrive is abandoned a time after its request, however long the authentication takes, and one
// whose client leaves at once.
func TestBodyThatDoesNotArriveIsAbandoned(t *testing.T) {
	for name, test := range map[string]struct{ leaves, authenticated, after time.Duration }{
		"nobody leaves":           {leaves: time.Hour, after: 65 * time.Second},
		"the client leaves":       {leaves: 10 * time.Second, after: 10 * time.Second},
		"a review takes its time": {leaves: time.Hour, authenticated: 20 * time.Second, after: 65 * time.Second},
	} {
		for kind, of := range map[string]struct {
			path   string
			length int64
		}{
			"plain": {coreEvents, 100}, "not plain": {coreEvents + "?fieldManager=a", 100},
			"batch": {coreEvents + "?batch=true", 100}, "of unknown length": {coreEvents, -1},
		} {
			bubble(t, name+", "+kind, func(t *testing.T) {
				s := serve(t, written(), withServer(func(o *intake.ServerOptions) {
					o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
						time.Sleep(test.authenticated)
						return &authenticator.Response{User: &user.DefaultInfo{Name: "tester"}}, true, nil
					})
				}))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				body, end := io.Pipe()
				defer end.Close()
				time.AfterFunc(test.leaves, func() {
					leave()
					_ = body.Close() // as a server does
				})
				req := usualRequest{method: http.MethodPost, path: of.path, contentType: jsonType}.build(ctx)
				req.Body, req.ContentLength = body, of.length
				begun := time.Now()
				a := s.Send(req)
				equal(t, "code", a.Code, http.StatusGatewayTimeout)
				equal(t, "after", time.Since(begun), test.after)
				s.Pipeline.WantRecorded(t, 0)
			})
		}
	}
}
