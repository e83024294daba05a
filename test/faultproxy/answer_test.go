package faultproxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// createWith creates an Event through client-go, once, and returns its error.
func createWith(t *testing.T, config *rest.Config, api API, namespace, name string) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if api == EventsV1 {
		return clients.EventsV1().RESTClient().Post().UseProtobufAsDefault().MaxRetries(0).Namespace(namespace).Resource("events").
			Body(&eventsv1.Event{
				ObjectMeta: meta, EventTime: metav1.NowMicro(), Type: "Normal", Reason: "Tested", Action: "Testing",
				ReportingController: "example.com/test", ReportingInstance: "test-0",
				Regarding: corev1.ObjectReference{Namespace: namespace},
			}).Do(t.Context()).Error()
	}
	return clients.CoreV1().RESTClient().Post().UseProtobufAsDefault().MaxRetries(0).Namespace(namespace).Resource("events").
		Body(&corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: namespace}}).Do(t.Context()).Error()
}

// A client takes the answers for those of an apiserver, in JSON and in protobuf.
func TestAnswersAreWhatAnAPIServerSays(t *testing.T) {
	for name, test := range map[string]struct {
		answer Answer
		reason metav1.StatusReason
		code   int32
		after  int
	}{
		"403":          {Status(403), metav1.StatusReasonForbidden, 403, 0},
		"408":          {Status(408), metav1.StatusReasonUnknown, 408, 0},
		"429":          {Status(429), metav1.StatusReasonTooManyRequests, 429, 0},
		"429 and when": {Status(429).RetryAfter(3), metav1.StatusReasonTooManyRequests, 429, 3},
		"500":          {Status(500), metav1.StatusReasonInternalError, 500, 0},
		"503 and when": {Status(503).RetryAfter(7), metav1.StatusReasonServiceUnavailable, 503, 7},
		"504":          {Status(504), metav1.StatusReasonTimeout, 504, 0},
		"plain text":   {Status(503).RetryAfter(2).PlainText(), metav1.StatusReasonServiceUnavailable, 503, 2},
	} {
		for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			t.Run(name+" in "+contentType, func(t *testing.T) {
				p := New(t, newFake(t).config, 1)
				p.SetRules(always(BeforeWrite(test.answer)))
				config := p.Config()
				config.ContentType, config.AcceptContentTypes = contentType, contentType
				err := createWith(t, config, EventsV1, "ns", "a")
				var status apierrors.APIStatus
				if !errors.As(err, &status) {
					t.Fatalf("the client got %v", err)
				}
				s := status.Status()
				if s.Code != test.code || s.Reason != test.reason {
					t.Errorf("the client got %+v", s)
				}
				if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != test.after {
					t.Errorf("the client is to come again after %d s, want %d", seconds, test.after)
				}
				if e := onlyEntry(t, p); e.Name != "a" || e.API != EventsV1 {
					t.Errorf("recorded is %+v", e)
				}
			})
		}
	}
}

func TestBodyOfAnAnswerIsInTheClientsEncoding(t *testing.T) {
	status := Status(500).RetryAfter(1)
	for _, test := range []struct {
		answer       Answer
		accept, want string // want: a media type
		begins       string
	}{
		{status, "application/json", "application/json", `{"kind":"Status","apiVersion":"v1"`},
		{status, "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf", "k8s\x00"},
		{status, "application/json, */*", "application/json", `{"kind":"Status"`},
		{status, "text/html;q=", "application/json", `{"kind":"Status"`},
		{status, "", "application/json", `{"kind":"Status"`},
		{status.PlainText(), "application/json", "text/plain; charset=utf-8", "Internal Server Error\n"},
	} {
		p := New(t, newFake(t).config, 1)
		p.SetRules(always(BeforeWrite(test.answer)))
		g := clientOf(t, p).do(t.Context(), http.MethodPost, "/api/v1/namespaces/ns/events", eventNamed("a"), "Accept", test.accept)
		if g.header.Get("Content-Type") != test.want || !strings.HasPrefix(g.body, test.begins) || g.header.Get("Retry-After") != "1" {
			t.Errorf("to %q the answer is %v %q", test.accept, g.header, g.body)
		}
	}
}
