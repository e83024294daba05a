package intake

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// maxUsualBody is the limit of a usual body. An Event has about 1 KiB.
	maxUsualBody = 16 << 10
	// Limits of the names of namespaces and Events: those of labels and subdomains of DNS.
	maxDNSLabel     = 63
	maxDNSSubdomain = 253
)

// usual is a report as client-go sends it: a POST or a strategic merge PATCH of an Event.
type usual struct {
	api      occurrence.API
	info     request.RequestInfo
	protobuf bool // the body
	// answer is the media type of the response.
	answer string
	// deadline is the context of the request. Set by fastPath.
	deadline deadline
	// abandonAt is until when the body may arrive. Set by withUsualDeadline.
	abandonAt time.Time
	// received is the body when it has arrived. abandoning is waited for when its read was abandoned. Set by
	// withUsualBody.
	received   receivedBody
	abandoning sync.WaitGroup
	call       call
}

// usualHeaders are the headers that client-go sends. Any other one may change what a request
// means, or only its logs: it takes the generic path.
var usualHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Authorization": true,
	"Content-Length": true, "Content-Type": true, "User-Agent": true,
}

// usualAccept is the media type that is negotiated for what client-go accepts.
var usualAccept = map[string]string{
	"":                                    runtime.ContentTypeJSON,
	"application/json":                    runtime.ContentTypeJSON,
	"application/json, */*":               runtime.ContentTypeJSON,
	"application/vnd.kubernetes.protobuf": runtime.ContentTypeProtobuf,
	"application/vnd.kubernetes.protobuf, */*":             runtime.ContentTypeProtobuf,
	"application/vnd.kubernetes.protobuf,application/json": runtime.ContentTypeProtobuf,
}

// usualRequest returns nil unless a request is exactly as client-go sends it, with no other headers than some. It
// does not change the request.
func usualRequest(req *http.Request, maxBody int64, headers map[string]bool) *usual {
	if req.ContentLength <= 0 || req.ContentLength > maxBody || req.Body == nil || len(req.TransferEncoding) > 0 || len(req.Trailer) > 0 {
		return nil
	}
	for name, values := range req.Header {
		if len(values) != 1 || !headers[name] {
			return nil
		}
	}
	if own, _ := headerBytes(req); own > HeaderBytes {
		return nil
	}
	answer, ok := usualAccept[header(req, "Accept")]
	if !ok || !usualEncoding(header(req, "Accept-Encoding")) {
		return nil
	}
	contentType := header(req, "Content-Type")
	protobuf := contentType == runtime.ContentTypeProtobuf
	switch {
	case req.Method == http.MethodPost && (protobuf || contentType == runtime.ContentTypeJSON):
	case req.Method == http.MethodPatch && contentType == string(types.StrategicMergePatchType):
	default:
		return nil
	}
	u := &usual{protobuf: protobuf, answer: answer}
	if !u.setTarget(req) {
		return nil
	}
	u.call.usual, u.call.early = u, true
	return u
}

// header returns the value of a header that has at most one.
func header(req *http.Request, name string) string {
	if values := req.Header[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

func usualEncoding(accepted string) bool { return accepted == "" || accepted == "gzip" }

// setTarget sets what is in the URL, as request.RequestInfoFactory does. It returns false for any URL that could
// be read in another way. Names of DNS have only one spelling in a path.
func (u *usual) setTarget(req *http.Request) bool {
	url := req.URL
	if url.RawPath != "" || url.RawQuery != "" || url.ForceQuery || url.Host != "" || url.Opaque != "" || url.User != nil || url.Fragment != "" ||
		req.RequestURI != "" && req.RequestURI != url.Path {
		return false
	}
	u.info = request.RequestInfo{IsResourceRequest: true, Path: url.Path, Resource: resourceName, APIVersion: "v1"}
	rest, ok := strings.CutPrefix(url.Path, "/api/v1/namespaces/")
	if u.info.APIPrefix = "api"; !ok {
		if rest, ok = strings.CutPrefix(url.Path, "/apis/events.k8s.io/v1/namespaces/"); !ok {
			return false
		}
		u.api, u.info.APIPrefix, u.info.APIGroup = occurrence.EventsV1, "apis", "events.k8s.io"
	}
	namespace, rest, ok := strings.Cut(rest, "/")
	if !ok || len(namespace) > maxDNSLabel || !isDNSName(namespace, false) {
		return false
	}
	u.info.Namespace = namespace
	if req.Method == http.MethodPost {
		u.info.Verb, u.info.Parts = "create", createParts
		return rest == resourceName
	}
	name, ok := strings.CutPrefix(rest, resourceName+"/")
	if !ok || len(name) > maxDNSSubdomain || !isDNSName(name, true) {
		return false
	}
	u.info.Verb, u.info.Name, u.info.Parts = "patch", name, []string{resourceName, name}
	return true
}

// createParts is shared; nobody changes it.
var createParts = []string{resourceName}

// isDNSName reports whether a name is a label of DNS or, with dots, a subdomain, whatever its length.
func isDNSName(s string, dots bool) bool {
	before := byte('.') // labels begin and end with a letter or digit
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
		case c == '-' && before != '.':
		case c == '.' && dots && before != '-' && before != '.':
		default:
			return false
		}
		before = c
	}
	return before != '-' && before != '.'
}
