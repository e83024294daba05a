package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
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

func TestUsualRequestsTakeTheFastPath(t *testing.T) {
	p := bothPaths(t, written)
	for _, r := range usualRequests() {
		req := r.build(t.Context())
		info := intake.UsualInfo(req)
		if info == nil {
			t.Fatalf("%s %s %v takes the generic path", r.method, r.path, req.Header)
		}
		if want := must(intake.GenericInfo(req)); !reflect.DeepEqual(info, want) {
			t.Errorf("%s %s is taken for %+v, not %+v", r.method, r.path, info, want)
		}
		if api := apiOfPath(r.path); r.method == http.MethodPost && intake.UsualEvent(api, r.contentType, r.body) == nil {
			t.Errorf("the body takes the generic path: %q", r.body)
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

func setPath(req *http.Request, path string) { req.URL.Path, req.RequestURI = path, path }

// The longest names and bodies that client-go sends are usual.
func TestLongestUsualRequests(t *testing.T) {
	for name, r := range map[string]struct {
		method, path, contentType string
		length                    int64
	}{
		"a namespace":                  {http.MethodPost, "/api/v1/namespaces/" + long(63) + "/events", jsonType, 2},
		"a name":                       {http.MethodPatch, coreEvents + "/" + long(253), strategicType, 2},
		"a name with dots and hyphens": {http.MethodPatch, coreEvents + "/a-b.c--d", strategicType, 2},
		"a body":                       {http.MethodPost, coreEvents, jsonType, 16 << 10},
	} {
		req := usualRequest{method: r.method, path: r.path, contentType: r.contentType, body: []byte("{}")}.build(t.Context())
		req.ContentLength = r.length
		if intake.UsualInfo(req) == nil {
			t.Errorf("%s takes the generic path", name)
		}
	}
}

// What changes the meaning of a request, or only might, takes the generic path.
func TestUnusualRequestsTakeTheGenericPath(t *testing.T) {
	post := usualRequest{method: http.MethodPost, path: coreEvents, contentType: jsonType, body: []byte(`{}`)}
	patch := usualRequest{method: http.MethodPatch, path: coreEvents + "/a", contentType: strategicType, body: []byte(`{}`)}
	for name, change := range map[string]func(*http.Request){
		"as they are":              func(*http.Request) {},
		"PUT":                      func(req *http.Request) { req.Method = http.MethodPut },
		"a body of unknown length": func(req *http.Request) { req.ContentLength = -1 },
		"a chunked body":           func(req *http.Request) { req.TransferEncoding = []string{"chunked"} },
		"no body":                  func(req *http.Request) { req.ContentLength = 0 },
		"a large body":             func(req *http.Request) { req.ContentLength = 17 << 10 },
		"a trailer":                func(req *http.Request) { req.Trailer = http.Header{"X": nil} },
		"a query":                  func(req *http.Request) { req.URL.RawQuery = "dryRun=All" },
		"a question mark":          func(req *http.Request) { req.URL.ForceQuery = true },
		"an encoded path":          func(req *http.Request) { req.URL.RawPath = "/api%2Fv1" },
		"an encoded request URI":   func(req *http.Request) { req.RequestURI = "/%61pi/v1/namespaces/ns/events" },
		"an absolute URI":          func(req *http.Request) { req.URL.Host = "example.com" },
		"an opaque URI":            func(req *http.Request) { req.URL.Opaque = "x" },
		"a user in the URI":        func(req *http.Request) { req.URL.User = url.User("x") },
		"a fragment":               func(req *http.Request) { req.URL.Fragment = "x" },
		"a slash at the end":       func(req *http.Request) { req.URL.Path += "/"; req.RequestURI += "/" },
		"a double slash":           func(req *http.Request) { req.URL.Path = "/" + req.URL.Path; req.RequestURI = req.URL.Path },
		"dots":                     func(req *http.Request) { req.URL.Path = "/api/v1/namespaces/../events"; req.RequestURI = req.URL.Path },
		"a name of dots":           func(req *http.Request) { req.URL.Path = coreEvents + "/.."; req.RequestURI = req.URL.Path },
		"a subresource":            func(req *http.Request) { req.URL.Path = coreEvents + "/a/status"; req.RequestURI = req.URL.Path },
		"capitals":                 func(req *http.Request) { req.URL.Path = "/api/v1/namespaces/NS/events"; req.RequestURI = req.URL.Path },
		"another resource":         func(req *http.Request) { req.URL.Path = "/api/v1/namespaces/ns/pods"; req.RequestURI = req.URL.Path },
		"another version": func(req *http.Request) {
			req.URL.Path = "/apis/events.k8s.io/v1beta1/namespaces/ns/events"
			req.RequestURI = req.URL.Path
		},
		"no namespace": func(req *http.Request) { req.URL.Path = "/api/v1/namespaces//events"; req.RequestURI = req.URL.Path },
		"a long namespace": func(req *http.Request) {
			req.URL.Path = "/api/v1/namespaces/" + long(64) + "/events"
			req.RequestURI = req.URL.Path
		},
		"a namespace with a dot":                         func(req *http.Request) { setPath(req, "/api/v1/namespaces/a.b/events") },
		"a namespace that begins with a hyphen":          func(req *http.Request) { setPath(req, "/api/v1/namespaces/-a/events") },
		"a namespace that ends with a hyphen":            func(req *http.Request) { setPath(req, "/api/v1/namespaces/a-/events") },
		"a name in a namespace with a dot":               func(req *http.Request) { setPath(req, "/api/v1/namespaces/a.b/events/a") },
		"a name that begins with a dot":                  func(req *http.Request) { setPath(req, coreEvents+"/.a") },
		"a name that ends with a dot":                    func(req *http.Request) { setPath(req, coreEvents+"/a.") },
		"a long name":                                    func(req *http.Request) { setPath(req, coreEvents+"/"+long(254)) },
		"a body that is missing, though it has a length": func(req *http.Request) { req.Body = nil },
		"a watch": func(req *http.Request) {
			req.URL.Path = "/api/v1/watch/namespaces/ns/events"
			req.RequestURI = req.URL.Path
		},
		"impersonation":   func(req *http.Request) { req.Header.Set("Impersonate-User", "a") },
		"a front proxy":   func(req *http.Request) { req.Header.Set("X-Remote-User", "a") },
		"a replica":       func(req *http.Request) { req.Header.Set(intake.AssertedUserHeader, "a") },
		"an audit ID":     func(req *http.Request) { req.Header.Set("Audit-Id", "a") },
		"an encoded body": func(req *http.Request) { req.Header.Set("Content-Encoding", "gzip") },
		"Expect":          func(req *http.Request) { req.Header.Set("Expect", "100-continue") },
		"Upgrade":         func(req *http.Request) { req.Header.Set("Upgrade", "h2c") },
		"a header twice":  func(req *http.Request) { req.Header.Add("Content-Type", jsonType) },
		"a charset": func(req *http.Request) {
			req.Header.Set("Content-Type", req.Header.Get("Content-Type")+"; charset=utf-8")
		},
		"no content type":           func(req *http.Request) { req.Header.Del("Content-Type") },
		"YAML":                      func(req *http.Request) { req.Header.Set("Content-Type", yamlType) },
		"an apply patch":            func(req *http.Request) { req.Header.Set("Content-Type", "application/apply-patch+yaml") },
		"a table":                   func(req *http.Request) { req.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1") },
		"a quality":                 func(req *http.Request) { req.Header.Set("Accept", "application/json;q=0.9") },
		"another encoding":          func(req *http.Request) { req.Header.Set("Accept-Encoding", "br, gzip") },
		"large headers":             func(req *http.Request) { req.Header.Set("User-Agent", long(17<<10)) },
		"a token for a WebSocket":   func(req *http.Request) { req.Header.Set("Sec-Websocket-Protocol", "a") },
		"a header in another style": func(req *http.Request) { req.Header["content-type"] = []string{jsonType} },
	} {
		for _, r := range []usualRequest{post, patch} {
			req := r.build(t.Context())
			req.Header.Set("Accept", "application/json")
			change(req)
			if usual := intake.UsualInfo(req) != nil; usual != (name == "as they are") {
				t.Errorf("%s, with %s: usual is %t", r.method, name, usual)
			}
		}
	}
}

// FuzzFastPath sends any body and path as client-go would, on both paths.
func FuzzFastPath(f *testing.F) {
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
	} {
		for i := range byte(5) {
			f.Add(true, false, coreEvents+"/known", jsonType, i, []byte(body))
			f.Add(true, false, newEvents+"/known", protoType, i, []byte(body))
			f.Add(true, false, coreEvents+"/known-too", jsonType, i, []byte(body))
		}
	}
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
		p := bothPaths(t, written)
		p.compare(t, usualRequest{method: http.MethodPost, path: coreEvents, contentType: jsonType, body: encode(classic("known", 1), occurrence.CoreV1, jsonType)})
		p.compare(t, usualRequest{method: http.MethodPost, path: newEvents, contentType: protoType, body: encode(newStyle("known-too"), occurrence.EventsV1, protoType)})
		for _, s := range []*server{p.fast, p.generic} {
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

// A body that does not arrive, or whose client leaves, is abandoned as on the generic path. That is a time
// after the request, however long its authentication takes.
func TestBodyThatDoesNotArriveIsAbandonedAlike(t *testing.T) {
	for name, test := range map[string]struct{ leaves, authenticated time.Duration }{
		"nobody leaves":           {leaves: time.Hour},
		"the client leaves":       {leaves: 10 * time.Second},
		"a review takes its time": {leaves: time.Hour, authenticated: 20 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			p := bothPaths(t, written, withServer(func(o *intake.ServerOptions) {
				o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
					time.Sleep(test.authenticated)
					return &authenticator.Response{User: &user.DefaultInfo{Name: "tester"}}, true, nil
				})
			}))
			var answers [2]answer
			var took [2]time.Duration
			for i, s := range []*server{p.fast, p.generic} {
				ctx, leave := context.WithCancel(t.Context())
				body, end := io.Pipe()
				time.AfterFunc(test.leaves, func() {
					leave()
					if s == p.fast {
						_ = body.Close() // as a server does; the generic path responds without that
					}
				})
				req := usualRequest{method: http.MethodPost, path: coreEvents, contentType: jsonType}.build(ctx)
				req.Body, req.ContentLength = body, 100
				if intake.UsualInfo(req) == nil {
					t.Fatal("the request takes the generic path")
				}
				begun := time.Now()
				answers[i] = s.Send(req)
				took[i] = time.Since(begun)
				answers[i].Header.Del("Audit-Id")
				_ = end.Close()
				leave()
				synctest.Wait()
				s.Pipeline.WantRecorded(t, 0)
			}
			equal(t, "answers", answers[0], answers[1])
			equal(t, "after", took[0], took[1])
			equal(t, "code", answers[0].Code, http.StatusGatewayTimeout)
		})
	}
}
