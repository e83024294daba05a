package intake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// handlers are two servers. One has the handlers of the apiserver handle all requests.
type handlers struct{ plain, generic *server }

func bothHandlers(t testing.TB, pipeline func() *fakePipeline, settings ...setting) handlers {
	t.Helper()
	p := handlers{serve(t, pipeline(), settings...), serve(t, pipeline(), settings...)}
	p.generic.Handler = notPlain(p.generic.Handler)
	return p
}

// notPlain adds an option that changes nothing, so that no request is plain.
func notPlain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u := *req.URL
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&fieldManager=a", "&")
		req.URL = &u
		next.ServeHTTP(w, req)
	})
}

// usualRequest is a request as client-go sends it.
type usualRequest struct {
	method, path, contentType, accept string
	header                            map[string]string
	body                              []byte
}

func (r usualRequest) build(ctx context.Context) *http.Request {
	req := httptest.NewRequestWithContext(ctx, r.method, "/", bytes.NewReader(r.body))
	req.URL.Path, req.RequestURI = r.path, r.path
	if path, query, ok := strings.Cut(r.path, "?"); ok {
		req.URL.Path, req.URL.RawQuery = path, query
	}
	req.Header.Set("Content-Type", r.contentType)
	req.Header.Set("User-Agent", "kubelet/v1.36.0 (linux/amd64) kubernetes/abcdef")
	req.Header.Set("Accept-Encoding", "gzip")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	return req
}

// compare sends the same request to both, and compares the answers and what is recorded.
func (p handlers) compare(t *testing.T, r usualRequest) {
	t.Helper()
	var answers [2]answer
	var recorded [2][]*occurrence.Occurrence
	for i, s := range []*server{p.plain, p.generic} {
		answers[i] = s.Send(r.build(t.Context()))
		recorded[i] = s.Pipeline.Taken()
		answers[i].Header.Del("Audit-Id")
	}
	fast, generic := answers[0], answers[1]
	if fast.Code != generic.Code || !bytes.Equal(withoutNow(fast.Body), withoutNow(generic.Body)) {
		t.Errorf("%s %s %.2000q\nis answered %d %q\nby the apiserver's handlers %d %q", r.method, r.path, r.body, fast.Code, fast.Body, generic.Code, generic.Body)
	}
	if diff := cmp.Diff(generic.Header, fast.Header); diff != "" {
		t.Errorf("%s %s %q: headers (-generic +fast):\n%s", r.method, r.path, r.body, diff)
	}
	if len(recorded[0]) != len(recorded[1]) {
		t.Fatalf("%d are recorded, by the apiserver's handlers %d", len(recorded[0]), len(recorded[1]))
	}
	for i, fast := range recorded[0] {
		generic := recorded[1][i]
		if !apiequality.Semantic.DeepEqual(fast.Event, generic.Event) || !apiequality.Semantic.DeepEqual(fast.Begun, generic.Begun) {
			t.Errorf("recorded (-generic +fast):\n%s", cmp.Diff(generic.Event, fast.Event))
		}
		if fast.API != generic.API || fast.Weight != generic.Weight || fast.Total != generic.Total || fast.Client != generic.Client ||
			fast.User != generic.User || fast.CreateOnly != generic.CreateOnly {
			t.Errorf("recorded %+v, by the apiserver's handlers %+v", fast, generic)
		}
	}
}

// withoutNow removes what is random, or the time, from the answer to an Event that is not written yet.
func withoutNow(body []byte) []byte {
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		if event, err := intake.DecodeEvent(api, protoType, body); err == nil && event.UID != "stored-uid" {
			event.UID, event.CreationTimestamp = "", metav1.Time{}
			return encode(event, api, protoType)
		}
	}
	var event map[string]any
	if json.Unmarshal(body, &event) != nil || event["kind"] != "Event" {
		return body
	}
	meta := event["metadata"].(map[string]any)
	if meta["uid"] == "stored-uid" {
		return body
	}
	uid, _ := meta["uid"].(string)
	created, _ := meta["creationTimestamp"].(string)
	if uid != "" {
		body = bytes.ReplaceAll(body, []byte(uid), []byte("random"))
	}
	return bytes.ReplaceAll(body, []byte(`"creationTimestamp":"`+created+`"`), []byte("now"))
}

// newStyle is a valid Event of events.k8s.io/v1 in core/v1.
func newStyle(name string) *corev1.Event {
	event := &eventsv1.Event{}
	if err := json.Unmarshal([]byte(fmt.Sprintf(newStyleJSON, name)), event); err != nil {
		panic(err)
	}
	return identity.ToCoreV1(event)
}

func encode(event *corev1.Event, api occurrence.API, mediaType string) []byte {
	return must(intake.GenericAnswer(event, api, mediaType))
}

// Both handlers count alike.
func TestBothHandlersCountAlike(t *testing.T) {
	p := bothHandlers(t, written)
	for _, r := range usualRequests() {
		p.compare(t, r)
	}
	for _, header := range []map[string]string{{withoutToken: "true"}, {"Authorization": "Basic x"}} {
		r := usualRequests()[0]
		r.header = header
		p.compare(t, r)
	}
	gather := func(s *server) (lines []string) {
		for _, family := range must(s.Registry.Gather()) {
			for _, m := range family.GetMetric() {
				lines = append(lines, fmt.Sprint(family.GetName(), m.GetLabel(), m.GetCounter().GetValue(), m.GetHistogram().GetSampleCount()))
			}
		}
		slices.Sort(lines)
		return lines
	}
	if diff := cmp.Diff(gather(p.generic), gather(p.plain)); diff != "" {
		t.Errorf("metrics (-generic +fast):\n%s", diff)
	}
}
