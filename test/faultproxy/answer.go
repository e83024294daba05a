package faultproxy

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Answer is an Ending: an error instead of the backend's answer. Its body is a
// metav1.Status in the encoding that the client accepts, as an apiserver's is,
// or plain text, as that of a load balancer or of the apiserver's outer filters.
type Answer struct {
	code       int
	retryAfter int
	plain      bool
}

// Status is an answer with a code of 400 to 599 and the usual Status for it.
func Status(code int) Answer { return Answer{code: code} }

// RetryAfter adds the header Retry-After, and the same to the Status.
func (a Answer) RetryAfter(seconds int) Answer {
	a.retryAfter = seconds
	return a
}

// PlainText replaces the Status by a line of text.
func (a Answer) PlainText() Answer {
	a.plain = true
	return a
}

// String is the code and what is unusual about it, such as "503 with Retry-After 1".
func (a Answer) String() string {
	s := strconv.Itoa(a.code)
	if a.plain {
		s += " in plain text"
	}
	if a.retryAfter != 0 {
		s += fmt.Sprintf(" with Retry-After %d", a.retryAfter)
	}
	return s
}

func (a Answer) check() error {
	if a.code < 400 || a.code > 599 {
		return fmt.Errorf("an answer with the code %d, which is no error", a.code)
	}
	return nil
}

func (a Answer) end(x *exchange) {
	contentType, body := a.body(x.request, x.r.Header.Values("Accept"))
	header := x.w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if a.retryAfter != 0 {
		header.Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	x.finish(a.code)
	x.w.WriteHeader(a.code)
	x.w.Write(body) // fails if the client has gone
}

func (a Answer) body(request Request, accept []string) (contentType string, body []byte) {
	if a.plain {
		return "text/plain; charset=utf-8", []byte(http.StatusText(a.code) + "\n")
	}
	info := negotiate(accept)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"})
	body, err := runtime.Encode(encoder, a.statusFor(request))
	if err != nil {
		panic(err) // a Status can be encoded
	}
	return info.MediaType, body
}

func (a Answer) statusFor(request Request) *metav1.Status {
	group := schema.GroupResource{Resource: "events"}
	if request.API == EventsV1 {
		group.Group = "events.k8s.io"
	}
	err := apierrors.NewGenericServerResponse(a.code, methodOf(request.Verb), group, request.Name, "a fault of faultproxy", 0, false)
	status := &err.ErrStatus
	if a.retryAfter != 0 {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		status.Details.RetryAfterSeconds = int32(a.retryAfter)
	}
	return status
}

func methodOf(v Verb) string {
	for method, verb := range verbs {
		if verb == v {
			return method
		}
	}
	return ""
}

// negotiate returns the first encoding that the client accepts and that there
// is, or else JSON.
func negotiate(accept []string) runtime.SerializerInfo {
	supported := scheme.Codecs.SupportedMediaTypes()
	for _, wanted := range strings.Split(strings.Join(accept, ","), ",") {
		mediaType, _, err := mime.ParseMediaType(wanted)
		if err != nil {
			continue
		}
		if info, ok := runtime.SerializerInfoForMediaType(supported, mediaType); ok {
			return info
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(supported, runtime.ContentTypeJSON)
	return info
}
