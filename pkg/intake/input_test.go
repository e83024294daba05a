package intake_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An input is a request to two servers, whose responses must be the same. In path,
// query and body, NS is a namespace that exists, TERMINATING one that is being deleted,
// and NAME a name that no other input has.
type input struct {
	name string
	// before are requests that must succeed first.
	before []input
	as     caller
	method string
	path   string
	header map[string]string
	body   string

	// result is the response of both servers. The causes are compared too.
	result
	// differs is why eventd responds with other instead, "" if it does not.
	differs string
	other   result
	// words is why messages, warnings and the name in the details are not compared.
	words string
}

// caller is who sends an input.
type caller int

const (
	writer   caller = iota // may create, patch and update events
	creator                // may create events, and patch or update none
	updater                // may patch and update events, but not create any
	limited                // may patch the event "the-one", and no other
	stranger               // is authenticated and has no rights
	nobody                 // sends no credentials
	forger                 // sends a token that is none
)

const (
	corePath   = "/api/v1/namespaces/NS/events"
	eventsPath = "/apis/events.k8s.io/v1/namespaces/NS/events"

	jsonType      = "application/json"
	strategicType = "application/strategic-merge-patch+json"
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
)

// The reasons for which eventd's responses differ. The status code and the reason, on
// which clients rely, differ only for inputs with unlike; the others differ in words.
// docs/intake.md has the list for users, with requests that are not sent here because
// only a kube-apiserver serves them: get, list, watch and delete.
const (
	noApply = "server-side apply is not served"

	noApplyOffered = "server-side apply is not among the types that are offered"
	otherLimit     = "the limit of a body is another"
	otherKinds     = "kinds other than Event are not known"
	otherSchemes   = "the Go types of the internal version have other names and fields"
	noRouter       = "the handler refuses what the apiserver's router refuses before it"
	otherNames     = "generated names differ"
	otherUIDs      = "uids differ"
	otherKey       = "there is no key in etcd"

	noImpersonation = "impersonation is not supported"
)

// unclearPaths have no RequestInfo. Their response is 500 with a text, not a Status.
var unclearPaths = []string{
	"/api/v1/watch", "/api/v1/proxy/", "//api/v1/watch", "/api//watch", "/api/nonsense/proxy",
	"/apis/events.k8s.io/v1/watch", "/apis//v1/proxy", "/apis///watch//",
}

// unclear reports whether a path is one of these: it ends with a verb, without a resource.
func unclear(path string) bool { return unclearPath.MatchString(strings.Trim(path, "/")) }

var unclearPath = regexp.MustCompile(`^(api/[^/]*|apis/[^/]*/[^/]*)/(watch|proxy)$`)

type fields map[string]any

// a returns base, a JSON object, with some fields replaced, or removed by nil.
// A field is named by its path, with dots.
func a(base fields, changes fields) string {
	var object fields
	if err := json.Unmarshal(must(json.Marshal(base)), &object); err != nil {
		panic(err)
	}
	for path, value := range changes {
		in, names := object, strings.Split(path, ".")
		for ; len(names) > 1; names = names[1:] {
			next, _ := in[names[0]].(map[string]any)
			if next == nil {
				next = fields{}
				in[names[0]] = map[string]any(next)
			}
			in = next
		}
		if in[names[0]] = value; value == nil {
			delete(in, names[0])
		}
	}
	return string(must(json.Marshal(object)))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var (
	coreClassic = fields{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       fields{"name": "NAME", "namespace": "NS"},
		"involvedObject": fields{"kind": "Pod", "namespace": "NS", "name": "web-0", "uid": "NAME"},
		"reason":         "Started", "message": "started", "type": "Normal", "count": 1,
		"source":         fields{"component": "kubelet"},
		"firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
	}
	coreNew = fields{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       fields{"name": "NAME", "namespace": "NS"},
		"involvedObject": fields{"kind": "Pod", "namespace": "NS", "name": "web-0", "uid": "NAME"},
		"eventTime":      "2026-01-02T03:04:05.000006Z", "action": "Binding", "reason": "Scheduled",
		"message": "bound", "type": "Normal",
		"reportingComponent": "example.com/controller", "reportingInstance": "controller-1",
	}
	newEvent = fields{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":  fields{"name": "NAME", "namespace": "NS"},
		"regarding": fields{"kind": "Pod", "namespace": "NS", "name": "web-0", "uid": "NAME"},
		"eventTime": "2026-01-02T03:04:05.000006Z", "action": "Binding", "reason": "Scheduled",
		"note": "bound", "type": "Normal",
		"reportingController": "example.com/controller", "reportingInstance": "controller-1",
	}
	series = fields{"series.count": 2, "series.lastObservedTime": "2026-01-02T03:04:06.000007Z"}
)

func long(n int) string { return strings.Repeat("x", n) }

// Requests that both APIs are sent.

func posted(path, body string) input {
	return input{method: http.MethodPost, path: path, body: body, result: created}
}

func put(path, body string) input {
	return input{method: http.MethodPut, path: path + "/NAME", body: body, result: accepted}
}

func patched(path, contentType, body string) input {
	return input{method: http.MethodPatch, path: path + "/NAME", body: body, result: accepted}.typed(contentType)
}

func (i input) named(name string) input            { i.name = name; return i }
func (i input) with(query string) input            { i.path += "?" + query; return i }
func (i input) after(before ...input) input        { i.before = before; return i }
func (i input) by(as caller) input                 { i.as = as; return i }
func (i input) answered(want result) input         { i.result = want; return i }
func (i input) at(path string) input               { i.path = path; return i }
func (i input) via(verb string) input              { i.method = verb; return i }
func (i input) otherWords(why string) input        { i.words = why; return i }
func (i input) typed(contentType string) input     { return i.headed("Content-Type", contentType) }
func (i input) accepting(contentType string) input { return i.headed("Accept", contentType) }

// headed adds a header to JSON.
func (i input) headed(name, value string) input {
	i.header = map[string]string{"Content-Type": jsonType}
	i.header[name] = value
	return i
}

func (i input) unlike(why string, want result) input {
	i.differs, i.other = why, want
	return i
}

// result is a status code, with the reason of an error.
type result struct {
	code   int
	reason metav1.StatusReason
}

var (
	accepted      = result{http.StatusOK, ""}
	created       = result{http.StatusCreated, ""}
	badRequest    = result{http.StatusBadRequest, metav1.StatusReasonBadRequest}
	noToken       = result{http.StatusUnauthorized, metav1.StatusReasonUnauthorized}
	forbidden     = result{http.StatusForbidden, metav1.StatusReasonForbidden}
	notFound      = result{http.StatusNotFound, metav1.StatusReasonNotFound}
	noMethod      = result{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed}
	notAcceptable = result{http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable}
	conflict      = result{http.StatusConflict, metav1.StatusReasonConflict}
	alreadyExists = result{http.StatusConflict, metav1.StatusReasonAlreadyExists}
	tooLarge      = result{http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge}
	badType       = result{http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType}
	invalid       = result{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid}
	serverError   = result{http.StatusInternalServerError, ""}
)

func (i input) setHeader(req *http.Request, tokens map[caller]string) {
	req.Header.Set("Content-Type", jsonType)
	for key, value := range i.header {
		req.Header.Set(key, value)
		if value == "" {
			req.Header.Del(key)
		}
	}
	if token := tokens[i.as]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
}
