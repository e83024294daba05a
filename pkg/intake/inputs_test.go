package intake_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An input is a request that is sent to two servers, which must answer alike.
// In path, query and body, NS stands for a namespace that exists, TERMINATING for
// one that is being deleted, and NAME for a name that no other input has.
type input struct {
	name string
	// before are requests that must succeed first.
	before []input
	as     caller
	method string
	path   string
	header map[string]string
	body   string

	// code and reason are what both servers answer; the causes are compared.
	code   int
	reason metav1.StatusReason
	// differs says why eventd answers with otherCode and otherReason instead.
	differs     string
	otherCode   int
	otherReason metav1.StatusReason
	// words says why messages, warnings and the name in the details are not
	// compared.
	words string
}

// caller is who sends an input.
type caller int

const (
	writer   caller = iota // may create, patch and update events
	creator                // may create events, and patch or update none
	updater                // may patch and update events, but not create any
	limited                // may patch the event "the-one", and no other
	stranger               // is known and may do nothing
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

// Where eventd's answers differ. What a client may rely on, the status code and
// the reason, differs only where an input says unlike; in the other cases the
// words do. The package comment has the list for users, with what is not sent
// here because a kube-apiserver does something else with it: get, list, watch
// and delete.
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

// unclearPaths are answered with 500, and a text that is no Status: what they are
// about cannot be found out.
var unclearPaths = []string{
	"/api/v1/watch", "/api/v1/proxy/", "//api/v1/watch", "/api//watch", "/api/nonsense/proxy",
	"/apis/events.k8s.io/v1/watch", "/apis//v1/proxy", "/apis///watch//",
}

// unclear tells whether a path is one of these: it ends with a verb, where a resource
// is to follow.
func unclear(path string) bool { return unclearPath.MatchString(strings.Trim(path, "/")) }

var unclearPath = regexp.MustCompile(`^(api/[^/]*|apis/[^/]*/[^/]*)/(watch|proxy)$`)

type fields map[string]any

// a returns base, a JSON object, with some fields replaced, or removed by nil.
// A field is named by its path, with dots.
func a(base fields, changes fields) string {
	var object fields
	data, err := json.Marshal(base)
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		panic(err)
	}
	for path, value := range changes {
		at := map[string]any(object)
		parts := strings.Split(path, ".")
		for _, part := range parts[:len(parts)-1] {
			next, ok := at[part].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[part] = next
			}
			at = next
		}
		last := parts[len(parts)-1]
		if value == nil {
			delete(at, last)
		} else {
			at[last] = value
		}
	}
	if data, err = json.Marshal(object); err != nil {
		panic(err)
	}
	return string(data)
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
	return input{method: http.MethodPost, path: path, body: body, code: http.StatusCreated}
}

func put(path, body string) input {
	return input{method: http.MethodPut, path: path + "/NAME", body: body, code: http.StatusOK}
}

func patched(path, contentType, body string) input {
	return input{method: http.MethodPatch, path: path + "/NAME", body: body, code: http.StatusOK,
		header: map[string]string{"Content-Type": contentType}}
}

func (i input) named(name string) input { i.name = name; return i }
func (i input) with(query string) input { i.path += "?" + query; return i }
func (i input) after(before ...input) input {
	i.before = before
	return i
}
func (i input) by(as caller) input { i.as = as; return i }
func (i input) answered(code int, reason metav1.StatusReason) input {
	i.code, i.reason = code, reason
	return i
}
func (i input) typed(contentType string) input {
	i.header = map[string]string{"Content-Type": contentType}
	return i
}
func (i input) accepting(contentType string) input {
	i.header = map[string]string{"Content-Type": jsonType, "Accept": contentType}
	return i
}
func (i input) impersonating(user string) input {
	i.header = map[string]string{"Content-Type": jsonType, "Impersonate-User": user}
	i.words = noImpersonation
	return i
}
func (i input) at(path string) input  { i.path = path; return i }
func (i input) via(verb string) input { i.method = verb; return i }
func (i input) unlike(why string, code int, reason metav1.StatusReason) input {
	i.differs, i.otherCode, i.otherReason = why, code, reason
	return i
}
func (i input) otherWords(why string) input { i.words = why; return i }

const (
	invalid     = http.StatusUnprocessableEntity
	badRequest  = http.StatusBadRequest
	badType     = http.StatusUnsupportedMediaType
	notFound    = http.StatusNotFound
	noMethod    = http.StatusMethodNotAllowed
	forbidden   = http.StatusForbidden
	conflict    = http.StatusConflict
	tooLarge    = http.StatusRequestEntityTooLarge
	noToken     = http.StatusUnauthorized
	serverError = http.StatusInternalServerError
)

// inputs returns the whole table.
func inputs() []input {
	var all []input
	for _, group := range []struct {
		name   string
		inputs []input
	}{
		{"core ", apiInputs(corePath, coreClassic, "message", "involvedObject")},
		{"events ", apiInputs(eventsPath, newEvent, "note", "regarding")},
		{"core ", coreInputs()},
		{"events ", eventsInputs()},
	} {
		for _, i := range group.inputs {
			i.name = group.name + i.name
			all = append(all, i)
		}
	}
	return all
}

// apiInputs are the same for both APIs.
func apiInputs(path string, base fields, message, about string) []input {
	ok := posted(path, a(base, nil))
	kindOf := func(kind string) input { return posted(path, a(base, fields{"kind": kind})) }
	return []input{
		ok.named("valid"),
		ok.typed("").named("no content type"),
		ok.typed("application/yaml").named("JSON as YAML"),
		ok.after(ok).answered(conflict, metav1.StatusReasonAlreadyExists).named("posted twice"),

		// bodies that are no Event
		posted(path, `{"kind":`).answered(badRequest, metav1.StatusReasonBadRequest).named("malformed JSON"),
		posted(path, ``).answered(badRequest, metav1.StatusReasonBadRequest).named("empty body"),
		posted(path, `[]`).answered(badRequest, metav1.StatusReasonBadRequest).named("a list"),
		posted(path, `{}`).answered(invalid, metav1.StatusReasonInvalid).named("an empty object"),
		posted(path, "\x00\xff").answered(badRequest, metav1.StatusReasonBadRequest).named("binary"),
		posted(path, a(base, fields{"count": "one", "deprecatedCount": "one"})).answered(badRequest, metav1.StatusReasonBadRequest).named("wrong type of field"),
		posted(path, a(base, fields{message: long(4 << 20)})).answered(tooLarge, metav1.StatusReasonRequestEntityTooLarge).
			otherWords(otherLimit).named("oversize body"),
		kindOf("Pod").answered(badRequest, metav1.StatusReasonBadRequest).otherWords(otherKinds).named("another kind"),
		kindOf("Nonsense").answered(badRequest, metav1.StatusReasonBadRequest).otherWords(otherSchemes).named("an unknown kind"),
		posted(path, a(base, fields{"apiVersion": "v2"})).answered(badRequest, metav1.StatusReasonBadRequest).otherWords(otherSchemes).named("an unknown version"),
		posted(path, a(base, fields{"apiVersion": "a/b/c"})).answered(badRequest, metav1.StatusReasonBadRequest).named("a malformed version"),
		posted(path, a(base, fields{"apiVersion": nil, "kind": nil})).named("no kind and version"),
		posted(path, a(base, fields{"apiVersion": "events.k8s.io/__internal"})).answered(badRequest, metav1.StatusReasonBadRequest).
			otherWords(otherSchemes).named("the internal version"),

		// content types
		ok.typed("text/plain").answered(badType, metav1.StatusReasonUnsupportedMediaType).named("text"),
		ok.typed("application/cbor").answered(badType, metav1.StatusReasonUnsupportedMediaType).named("CBOR"),
		ok.typed("nonsense").answered(badType, metav1.StatusReasonUnsupportedMediaType).named("a malformed content type"),
		ok.typed("application/vnd.kubernetes.protobuf").answered(badRequest, metav1.StatusReasonBadRequest).named("JSON as protobuf"),
		ok.accepting("image/png").answered(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable).otherWords(noRouter).named("wants a picture"),
		ok.accepting("application/json;as=Table;g=meta.k8s.io;v=v1").named("wants a table"),
		ok.accepting("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").named("wants metadata"),

		// names and namespaces
		posted(path, a(base, fields{"metadata.namespace": "other"})).answered(badRequest, metav1.StatusReasonBadRequest).named("another namespace in the body"),
		posted(path, a(base, fields{"metadata.namespace": nil})).named("no namespace in the body"),
		posted(path, a(base, fields{about + ".namespace": nil})).answered(invalid, metav1.StatusReasonInvalid).named("about an object without a namespace"),
		posted(path, a(base, fields{"metadata.name": nil})).answered(invalid, metav1.StatusReasonInvalid).named("no name"),
		posted(path, a(base, fields{"metadata.name": nil, "metadata.generateName": "some-"})).named("generateName"),
		posted(path, a(base, fields{"metadata.name": nil, "metadata.generateName": "not valid/"})).answered(invalid, metav1.StatusReasonInvalid).
			otherWords(otherNames).named("malformed generateName"),
		posted(path, a(base, fields{"metadata.name": "a/b"})).answered(invalid, metav1.StatusReasonInvalid).named("a name with a slash"),
		posted(path, a(base, fields{"metadata.name": ".."})).answered(invalid, metav1.StatusReasonInvalid).named("a name of dots"),
		posted(path, a(base, fields{"metadata.labels": fields{"not valid": "x"}})).answered(invalid, metav1.StatusReasonInvalid).named("malformed label"),
		posted(path, a(base, fields{"metadata.annotations": fields{"not valid": "x"}})).answered(invalid, metav1.StatusReasonInvalid).named("malformed annotation"),
		posted(path, a(base, fields{"metadata.annotations": fields{"eventd.io/not valid": "x"}})).answered(invalid, metav1.StatusReasonInvalid).named("malformed annotation of eventd"),
		posted(path, a(base, fields{"metadata.annotations": fields{"a": long(300 << 10)}})).answered(invalid, metav1.StatusReasonInvalid).named("annotations too long"),
		posted(path, a(base, fields{"metadata.ownerReferences": []fields{{"apiVersion": "v1", "kind": "Pod", "name": "p"}}})).answered(invalid, metav1.StatusReasonInvalid).named("an owner without uid"),
		posted(path, a(base, fields{"metadata.resourceVersion": "5"})).answered(serverError, "").named("a resourceVersion on create"),
		posted(path, a(base, fields{"metadata.resourceVersion": "abc"})).named("a malformed resourceVersion on create"),
		posted(path, a(base, fields{"metadata.uid": "mine", "metadata.creationTimestamp": "2020-01-01T00:00:00Z"})).named("system fields on create"),
		posted(path, a(base, fields{"metadata.managedFields": []fields{{"manager": "x"}}})).named("malformed managedFields"),
		posted(strings.Replace(path, "NS", "no-such-namespace", 1), a(base, fields{"metadata.namespace": "no-such-namespace", about + ".namespace": "no-such-namespace"})).
			answered(notFound, metav1.StatusReasonNotFound).named("a namespace that is not there"),

		posted(strings.Replace(path, "NS", "TERMINATING", 1), a(base, fields{"metadata.namespace": "TERMINATING", about + ".namespace": "TERMINATING"})).
			answered(forbidden, metav1.StatusReasonForbidden).named("a namespace that is terminating"),
		put(strings.Replace(path, "NS", "TERMINATING", 1), a(base, fields{"metadata.namespace": "TERMINATING", about + ".namespace": "TERMINATING"})).
			answered(forbidden, metav1.StatusReasonForbidden).named("PUT of a new name, a namespace that is terminating"),

		// options
		ok.with("dryRun=All").named("dry run"),
		ok.with("dryRun=All").after(ok).answered(conflict, metav1.StatusReasonAlreadyExists).named("dry run of a known name"),
		ok.with("dryRun=All&dryRun=All").named("dry run, twice"),
		ok.with("dryRun=true").answered(invalid, metav1.StatusReasonInvalid).named("dry run, wrong value"),
		ok.with("dryRun=").answered(invalid, metav1.StatusReasonInvalid).named("dry run, no value"),
		posted(path, a(base, fields{"reason": 1})).with("dryRun=All").answered(badRequest, metav1.StatusReasonBadRequest).named("dry run, wrong type of field"),
		ok.with("fieldManager=me").named("field manager"),
		ok.with("fieldManager="+long(129)).answered(invalid, metav1.StatusReasonInvalid).named("field manager too long"),
		ok.with("fieldManager=%00").answered(invalid, metav1.StatusReasonInvalid).named("field manager not printable"),
		ok.with("fieldValidation=Nonsense").answered(invalid, metav1.StatusReasonInvalid).named("field validation, wrong value"),
		posted(path, a(base, fields{"nonsense": 1})).named("an unknown field"),
		posted(path, a(base, fields{"nonsense": 1})).with("fieldValidation=Ignore").named("an unknown field, ignored"),
		posted(path, a(base, fields{"nonsense": 1})).with("fieldValidation=Strict").answered(badRequest, metav1.StatusReasonBadRequest).named("an unknown field, strictly"),
		posted(path, strings.Replace(a(base, nil), `"reason":`, `"reason":"Other","reason":`, 1)).with("fieldValidation=Strict").
			answered(badRequest, metav1.StatusReasonBadRequest).named("a field twice, strictly"),
		ok.with("timeout=nonsense").answered(badRequest, metav1.StatusReasonBadRequest).named("a malformed timeout"),
		ok.with("pretty=true").named("pretty"),

		// callers
		ok.by(nobody).answered(forbidden, metav1.StatusReasonForbidden).
			unlike("nobody is anonymous here", noToken, metav1.StatusReasonUnauthorized).named("no token"),
		ok.impersonating("system:admin").answered(forbidden, metav1.StatusReasonForbidden).named("no right to impersonate"),
		ok.by(forger).answered(noToken, metav1.StatusReasonUnauthorized).named("bad token"),
		ok.by(stranger).answered(forbidden, metav1.StatusReasonForbidden).named("no right to create"),
		put(path, a(base, nil)).by(stranger).answered(forbidden, metav1.StatusReasonForbidden).named("no right to update"),
		patched(path, strategicType, `{}`).by(stranger).answered(forbidden, metav1.StatusReasonForbidden).named("no right to patch"),
		posted(path, `{`).by(stranger).answered(forbidden, metav1.StatusReasonForbidden).named("no right, malformed"),
		patched(path, strategicType, `{}`).by(creator).after(ok).answered(forbidden, metav1.StatusReasonForbidden).named("a creator's patch"),
		patched(path, strategicType, `{}`).at(path+"/the-one").by(limited).answered(notFound, metav1.StatusReasonNotFound).named("a patch of the only one that may be"),
		patched(path, strategicType, `{}`).by(limited).after(ok).answered(forbidden, metav1.StatusReasonForbidden).named("a patch of another"),
		put(path, a(base, nil)).by(updater).after(ok).named("an updater's update"),
		put(path, a(base, nil)).by(updater).answered(forbidden, metav1.StatusReasonForbidden).named("an updater's create"),

		// paths
		ok.at(path+"/NAME").answered(noMethod, metav1.StatusReasonMethodNotAllowed).named("POST of one"),
		ok.via(http.MethodPut).answered(noMethod, metav1.StatusReasonMethodNotAllowed).named("PUT of all"),
		ok.via(http.MethodPatch).typed(strategicType).answered(noMethod, metav1.StatusReasonMethodNotAllowed).named("PATCH of all"),
		ok.at(path+"/NAME/status").via(http.MethodPut).by(writer).answered(forbidden, metav1.StatusReasonForbidden).named("a subresource"),

		// PUT
		put(path, a(base, nil)).answered(http.StatusCreated, "").named("PUT of a new name"),
		put(path, a(base, nil)).after(ok).named("PUT unchanged"),
		put(path, a(base, fields{"metadata.labels": fields{"a": "b"}})).after(ok).named("PUT of labels"),
		put(path, a(base, nil)).with("dryRun=All").answered(http.StatusCreated, "").named("PUT, dry run"),
		put(path, a(base, fields{"metadata.name": "other"})).answered(badRequest, metav1.StatusReasonBadRequest).named("PUT under another name"),
		put(path, a(base, fields{"metadata.name": nil})).answered(badRequest, metav1.StatusReasonBadRequest).named("PUT without a name"),
		put(path, a(base, fields{"metadata.namespace": "other"})).answered(badRequest, metav1.StatusReasonBadRequest).named("PUT with another namespace"),
		put(path, a(base, fields{"metadata.uid": "mine"})).answered(conflict, metav1.StatusReasonConflict).
			otherWords(otherKey).named("PUT of a new name with a uid"),
		put(path, a(base, fields{"metadata.uid": "mine"})).after(ok).answered(conflict, metav1.StatusReasonConflict).
			otherWords(otherKey).named("PUT with another uid"),
		put(path, a(base, fields{"metadata.resourceVersion": "1"})).answered(http.StatusCreated, "").named("PUT of a new name with a resourceVersion"),
		put(path, a(base, fields{"metadata.resourceVersion": "1"})).after(ok).answered(conflict, metav1.StatusReasonConflict).named("PUT with an old resourceVersion"),
		put(path, a(base, fields{"metadata.resourceVersion": "abc"})).after(ok).answered(serverError, "").named("PUT with a malformed resourceVersion"),
		put(path, a(base, fields{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"})).answered(http.StatusCreated, "").named("PUT of a new name that is being deleted"),
		put(path, a(base, fields{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"})).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PUT of a deletion"),
		posted(path, a(base, fields{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"})).named("a deletion on create"),
		put(path, `{`).answered(badRequest, metav1.StatusReasonBadRequest).named("PUT malformed"),
		put(path, a(base, fields{"metadata.labels": fields{"not valid": "x"}})).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PUT with a malformed label"),
		put(path, a(base, nil)).typed("text/plain").answered(badType, metav1.StatusReasonUnsupportedMediaType).named("PUT text"),
		put(path, a(base, fields{message: long(4 << 20)})).answered(tooLarge, metav1.StatusReasonRequestEntityTooLarge).
			otherWords(otherLimit).named("PUT oversize"),
		put(path, a(base, nil)).with("dryRun=no").answered(invalid, metav1.StatusReasonInvalid).named("PUT, dry run, wrong value"),

		// PATCH
		patched(path, strategicType, `{}`).answered(notFound, metav1.StatusReasonNotFound).named("PATCH of an unknown name"),
		patched(path, mergeType, `{}`).answered(notFound, metav1.StatusReasonNotFound).named("merge PATCH of an unknown name"),
		patched(path, jsonPatchType, `[]`).answered(notFound, metav1.StatusReasonNotFound).named("JSON PATCH of an unknown name"),
		patched(path, strategicType, `{}`).after(ok).named("empty PATCH"),
		patched(path, strategicType, `{"metadata":{"labels":{"a":"b"}}}`).after(ok).named("PATCH of labels"),
		patched(path, mergeType, `{"metadata":{"labels":{"a":"b"}}}`).after(ok).named("merge PATCH of labels"),
		patched(path, jsonPatchType, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`).after(ok).named("JSON PATCH of labels"),
		patched(path, strategicType, `{"metadata":{"labels":{"a":"b"}}}`).with("dryRun=All").after(ok).named("PATCH, dry run"),
		patched(path, strategicType, `{`).after(ok).answered(badRequest, metav1.StatusReasonBadRequest).named("malformed PATCH"),
		patched(path, mergeType, `{`).after(ok).answered(badRequest, metav1.StatusReasonBadRequest).named("malformed merge PATCH"),
		patched(path, jsonPatchType, `{}`).after(ok).answered(badRequest, metav1.StatusReasonBadRequest).named("malformed JSON PATCH"),
		patched(path, jsonPatchType, `[{"op":"remove","path":"/nonsense"}]`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("JSON PATCH of nothing"),
		patched(path, jsonPatchType, `[{"op":"test","path":"/reason","value":"other"}]`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("JSON PATCH whose test fails"),
		patched(path, strategicType, `{"reason":1}`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH with a wrong type"),
		patched(path, strategicType, `{"nonsense":1}`).with("fieldValidation=Strict").after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH of an unknown field, strictly"),
		patched(path, strategicType, `{"nonsense":1}`).after(ok).named("PATCH of an unknown field"),
		patched(path, strategicType, `{"metadata":{"name":"other"}}`).after(ok).answered(badRequest, metav1.StatusReasonBadRequest).named("PATCH of the name"),
		patched(path, strategicType, `{"metadata":{"namespace":"other"}}`).after(ok).answered(badRequest, metav1.StatusReasonBadRequest).named("PATCH of the namespace"),
		patched(path, strategicType, `{"metadata":{"uid":"other"}}`).after(ok).answered(invalid, metav1.StatusReasonInvalid).
			otherWords(otherUIDs).named("PATCH of the uid"),
		patched(path, strategicType, `{"metadata":{"resourceVersion":"1"}}`).after(ok).answered(conflict, metav1.StatusReasonConflict).named("PATCH with an old resourceVersion"),
		patched(path, strategicType, `{"metadata":{"labels":{"not valid":"b"}}}`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH of a malformed label"),
		patched(path, jsonType, `{}`).after(ok).answered(badType, metav1.StatusReasonUnsupportedMediaType).otherWords(noApplyOffered).named("PATCH of no patch type"),
		patched(path, "", `{}`).after(ok).answered(badType, metav1.StatusReasonUnsupportedMediaType).otherWords(noApplyOffered).named("PATCH without a type"),
		patched(path, "application/apply-patch+cbor", `{}`).after(ok).answered(badType, metav1.StatusReasonUnsupportedMediaType).otherWords(noApplyOffered).named("apply, CBOR"),
		patched(path, "application/apply-patch+yaml", a(base, nil)).with("fieldManager=me").after(ok).
			unlike(noApply, badType, metav1.StatusReasonUnsupportedMediaType).named("apply"),
		patched(path, strategicType, `{}`).with("force=true").after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH with force"),
		patched(path, strategicType, `{}`).with("dryRun=no").after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH, dry run, wrong value"),
		patched(path, strategicType, `{"`+message+`":"`+long(4<<20)+`"}`).after(ok).answered(tooLarge, metav1.StatusReasonRequestEntityTooLarge).
			otherWords(otherLimit).named("oversize PATCH"),
	}
}

// coreInputs are what core/v1 takes or refuses in its own way.
func coreInputs() []input {
	classic := func(changes fields) input { return posted(corePath, a(coreClassic, changes)) }
	newStyle := func(changes fields) input { return posted(corePath, a(coreNew, changes)) }
	ok := classic(nil)
	all := []input{
		posted(corePath, a(newEvent, nil)).answered(badRequest, metav1.StatusReasonBadRequest).named("the other API's body"),
		classic(fields{"message": long(5000), "reason": long(500), "type": "Odd"}).named("classic, over-long and odd"),
		classic(fields{"reason": nil, "message": nil, "type": nil, "source": nil, "count": nil}).named("classic, nearly empty"),
		classic(fields{"count": -5}).named("classic, negative count"),
		classic(fields{"metadata.name": "UPPER_case"}).named("classic, not a DNS name"),
		classic(fields{"involvedObject.namespace": "other"}).answered(invalid, metav1.StatusReasonInvalid).named("classic, about another namespace"),
		newStyle(nil).named("new style"),
		newStyle(series).named("new style, series"),
		newStyle(fields{"series.count": 0}).named("new style, series of none"),
		newStyle(fields{"involvedObject.namespace": "other"}).named("new style, about another namespace"),
		newStyle(fields{"count": 3, "source": fields{"component": "c"}}).named("new style, classic fields too"),
		newStyle(fields{"type": "Odd"}).named("new style, odd type"),
		put(corePath, a(coreClassic, fields{"count": 2, "message": "again"})).after(ok).named("PUT of count and message"),
		put(corePath, a(coreClassic, fields{"involvedObject.namespace": "other"})).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PUT about another namespace"),
		patched(corePath, strategicType, `{"count":2,"message":"again"}`).after(ok).named("PATCH of count and message"),
		patched(corePath, strategicType, `{"reason":"Other","involvedObject":{"name":"other"}}`).after(ok).named("PATCH of the identity"),
		patched(corePath, strategicType, `{"eventTime":"2026-01-02T03:04:05.000006Z"}`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH to the new style"),
	}
	return append(all, newStyleInputs("reportingComponent", "message", newStyle)...)
}

// newStyleInputs are refused by both APIs.
func newStyleInputs(controller, message string, event func(fields) input) []input {
	refused := func(changes fields) input { return event(changes).answered(invalid, metav1.StatusReasonInvalid) }
	return []input{
		refused(fields{controller: nil}).named("new style, no controller"),
		refused(fields{controller: "not valid/at/all"}).named("new style, malformed controller"),
		refused(fields{"reportingInstance": nil}).named("new style, no instance"),
		refused(fields{"reportingInstance": long(129)}).named("new style, instance too long"),
		refused(fields{"action": nil}).named("new style, no action"),
		refused(fields{"action": long(129)}).named("new style, action too long"),
		refused(fields{"reason": nil}).named("new style, no reason"),
		refused(fields{"reason": long(129)}).named("new style, reason too long"),
		refused(fields{message: long(1025)}).named("new style, message too long"),
		refused(fields{controller: nil, "reportingInstance": nil, "action": nil, "reason": nil, message: long(1025)}).named("new style, much amiss"),
		event(fields{message: long(1024), "action": long(128), "reason": long(128), "reportingInstance": long(128)}).named("new style, as long as may be"),
		event(fields{"eventTime": "yesterday"}).answered(badRequest, metav1.StatusReasonBadRequest).named("new style, malformed time"),
	}
}

// eventsInputs are what events.k8s.io/v1 takes or refuses in its own way.
func eventsInputs() []input {
	event := func(changes fields) input { return posted(eventsPath, a(newEvent, changes)) }
	refused := func(changes fields) input { return event(changes).answered(invalid, metav1.StatusReasonInvalid) }
	ok := event(nil)
	all := []input{
		posted(eventsPath, a(coreNew, nil)).answered(badRequest, metav1.StatusReasonBadRequest).named("the other API's body"),
		event(series).named("series"),
		refused(fields{"series.count": 1, "series.lastObservedTime": "2026-01-02T03:04:06.000007Z"}).named("series of one"),
		refused(fields{"series.count": 2}).named("series without a time"),
		refused(fields{"eventTime": nil}).named("no time"),
		refused(fields{"type": nil}).named("no type"),
		refused(fields{"type": "Odd"}).named("odd type"),
		refused(fields{"metadata.name": "UPPER_case"}).named("not a DNS name"),
		refused(fields{"metadata.name": long(254)}).named("name too long"),
		refused(fields{"metadata.finalizers": []string{"mine"}}).named("an odd finalizer"),
		event(fields{"metadata.finalizers": []string{"example.com/mine"}}).named("a finalizer"),
		refused(fields{"deprecatedCount": 1}).named("deprecated count"),
		refused(fields{"deprecatedSource": fields{"component": "c"}}).named("deprecated source"),
		refused(fields{"deprecatedFirstTimestamp": "0001-01-01T00:00:00Z"}).named("deprecated time that is zero"),
		refused(fields{"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z", "deprecatedLastTimestamp": "2026-01-02T03:04:05Z"}).named("deprecated times"),
		event(fields{"regarding.namespace": "other"}).named("about another namespace"),
		put(eventsPath, a(newEvent, series)).after(ok).named("PUT of a series"),
		patched(eventsPath, strategicType, `{"series":{"count":2,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`).after(ok).named("PATCH of a series"),
		patched(eventsPath, strategicType, `{"series":{"count":1,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH of a series of one"),
		patched(eventsPath, strategicType, `{"series":{"count":3}}`).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH of a series without a time"),
		patched(eventsPath, strategicType, `{"metadata":{"labels":{"a":"b"}}}`).
			after(posted(corePath, a(coreNew, fields{"series.count": 0}))).named("PATCH beside an odd series"),
		patched(eventsPath, strategicType, `{"series":{"count":1}}`).
			after(posted(corePath, a(coreNew, fields{"series.count": 0}))).answered(invalid, metav1.StatusReasonInvalid).named("PATCH of an odd series"),
		patched(eventsPath, strategicType, `{"deprecatedCount":2}`).after(posted(corePath, a(coreClassic, nil))).answered(invalid, metav1.StatusReasonInvalid).named("PATCH of a classic Event's count"),
	}
	for name, change := range map[string]fields{
		"regarding":    {"regarding.name": "other"},
		"reason":       {"reason": "Other"},
		"note":         {"note": "other"},
		"type":         {"type": corev1.EventTypeWarning},
		"time":         {"eventTime": "2026-01-02T03:04:05.000007Z"},
		"action":       {"action": "Other"},
		"related":      {"related": fields{"kind": "Node", "name": "node-1"}},
		"controller":   {"reportingController": "example.com/other"},
		"instance":     {"reportingInstance": "other"},
		"count":        {"deprecatedCount": 3},
		"source":       {"deprecatedSource": fields{"component": "c", "host": "h"}},
		"first time":   {"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z"},
		"many of them": {"reason": "Other", "note": "other", "action": "Other", "series.count": 1},
	} {
		all = append(all,
			put(eventsPath, a(newEvent, change)).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PUT changes the "+name),
			patched(eventsPath, mergeType, a(fields{}, change)).after(ok).answered(invalid, metav1.StatusReasonInvalid).named("PATCH changes the "+name))
	}
	return append(all, newStyleInputs("reportingController", "note", event)...)
}
