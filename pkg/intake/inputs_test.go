package intake_test

import (
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// inputs returns the whole table.
var inputs = sync.OnceValue(func() []input {
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
})

// apiInputs are the same for both APIs.
func apiInputs(path string, base fields, message, about string) []input {
	ok := posted(path, a(base, nil))
	elsewhere := func(namespace string) (at, body string) {
		changed := a(base, fields{"metadata.namespace": namespace, about + ".namespace": namespace})
		return strings.Replace(path, "NS", namespace, 1), changed
	}
	kindOf := func(kind string) input { return posted(path, a(base, fields{"kind": kind})) }
	return []input{
		ok.named("valid"),
		ok.typed("").named("no content type"),
		ok.typed("application/yaml").named("JSON as YAML"),
		ok.after(ok).answered(alreadyExists).named("posted twice"),

		// bodies that are no Event
		posted(path, `{"kind":`).answered(badRequest).named("malformed JSON"),
		posted(path, ``).answered(badRequest).named("empty body"),
		posted(path, `[]`).answered(badRequest).named("a list"),
		posted(path, `{}`).answered(invalid).named("an empty object"),
		posted(path, "\x00\xff").answered(badRequest).named("binary"),
		posted(path, a(base, fields{"count": "one", "deprecatedCount": "one"})).answered(badRequest).named("wrong type of field"),
		posted(path, a(base, fields{message: long(4 << 20)})).answered(tooLarge).
			otherWords(otherLimit).named("oversize body"),
		kindOf("Pod").answered(badRequest).otherWords(otherKinds).named("another kind"),
		kindOf("Nonsense").answered(badRequest).named("an unknown kind"),
		posted(path, a(base, fields{"apiVersion": "v2"})).answered(badRequest).named("an unknown version"),
		posted(path, a(base, fields{"apiVersion": "a/b/c"})).answered(badRequest).named("a malformed version"),
		posted(path, a(base, fields{"apiVersion": nil, "kind": nil})).named("no kind and version"),
		posted(path, a(base, fields{"apiVersion": "events.k8s.io/__internal"})).answered(badRequest).
			otherWords(otherSchemes).named("the internal version"),

		// content types
		ok.typed("text/plain").answered(badType).named("text"),
		ok.typed("application/cbor").answered(badType).named("CBOR"),
		ok.typed("nonsense").answered(badType).named("a malformed content type"),
		ok.typed("application/vnd.kubernetes.protobuf").answered(badRequest).named("JSON as protobuf"),
		ok.accepting("image/png").answered(notAcceptable).otherWords(noRouter).named("wants a picture"),
		ok.accepting("application/json;as=Table;g=meta.k8s.io;v=v1").named("wants a table"),
		ok.accepting("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").named("wants metadata"),

		// names and namespaces
		posted(path, a(base, fields{"metadata.namespace": "other"})).answered(badRequest).named("another namespace in the body"),
		posted(path, a(base, fields{"metadata.namespace": nil})).named("no namespace in the body"),
		posted(path, a(base, fields{about + ".namespace": nil})).answered(invalid).named("about an object without a namespace"),
		posted(path, a(base, fields{"metadata.name": nil})).answered(invalid).named("no name"),
		posted(path, a(base, fields{"metadata.name": nil, "metadata.generateName": "some-"})).named("generateName"),
		posted(path, a(base, fields{"metadata.name": nil, "metadata.generateName": "not valid/"})).answered(invalid).
			otherWords(otherNames).named("malformed generateName"),
		posted(path, a(base, fields{"metadata.name": "a/b"})).answered(invalid).named("a name with a slash"),
		posted(path, a(base, fields{"metadata.name": ".."})).answered(invalid).named("a name of dots"),
		posted(path, a(base, fields{"metadata.labels": fields{"not valid": "x"}})).answered(invalid).named("malformed label"),
		posted(path, a(base, fields{"metadata.annotations": fields{"not valid": "x"}})).answered(invalid).named("malformed annotation"),
		posted(path, a(base, fields{"metadata.annotations": fields{"eventd.io/not valid": "x"}})).answered(invalid).named("malformed annotation of eventd"),
		posted(path, a(base, fields{"metadata.annotations": fields{"a": long(300 << 10)}})).answered(invalid).named("annotations too long"),
		posted(path, a(base, fields{"metadata.ownerReferences": []fields{{"apiVersion": "v1", "kind": "Pod", "name": "p"}}})).answered(invalid).named("an owner without uid"),
		posted(path, a(base, fields{"metadata.resourceVersion": "5"})).answered(serverError).named("a resourceVersion on create"),
		posted(path, a(base, fields{"metadata.resourceVersion": "abc"})).named("a malformed resourceVersion on create"),
		posted(path, a(base, fields{"metadata.uid": "mine", "metadata.creationTimestamp": "2020-01-01T00:00:00Z"})).named("system fields on create"),
		posted(path, a(base, fields{"metadata.managedFields": []fields{{"manager": "x"}}})).named("malformed managedFields"),
		posted(elsewhere("no-such-namespace")).answered(notFound).named("a namespace that is not there"),
		posted(elsewhere("TERMINATING")).answered(forbidden).named("a namespace that is terminating"),
		put(elsewhere("TERMINATING")).answered(forbidden).named("PUT of a new name, a namespace that is terminating"),

		// options
		ok.with("dryRun=All").named("dry run"),
		ok.with("dryRun=All").after(ok).answered(alreadyExists).named("dry run of a known name"),
		ok.with("dryRun=All&dryRun=All").named("dry run, twice"),
		ok.with("dryRun=true").answered(invalid).named("dry run, wrong value"),
		ok.with("dryRun=").answered(invalid).named("dry run, no value"),
		posted(path, a(base, fields{"reason": 1})).with("dryRun=All").answered(badRequest).named("dry run, wrong type of field"),
		ok.with("fieldManager=me").named("field manager"),
		ok.with("fieldManager=" + long(129)).answered(invalid).named("field manager too long"),
		ok.with("fieldManager=%00").answered(invalid).named("field manager not printable"),
		ok.with("fieldValidation=Nonsense").answered(invalid).named("field validation, wrong value"),
		posted(path, a(base, fields{"nonsense": 1})).named("an unknown field"),
		posted(path, a(base, fields{"nonsense": 1})).with("fieldValidation=Ignore").named("an unknown field, ignored"),
		posted(path, a(base, fields{"nonsense": 1})).with("fieldValidation=Strict").answered(badRequest).named("an unknown field, strictly"),
		posted(path, strings.Replace(a(base, nil), `"reason":`, `"reason":"Other","reason":`, 1)).with("fieldValidation=Strict").
			answered(badRequest).named("a field twice, strictly"),
		ok.with("timeout=nonsense").answered(badRequest).named("a malformed timeout"),
		ok.with("pretty=true").named("pretty"),

		// callers
		ok.by(nobody).answered(forbidden).
			unlike("anonymous requests are not allowed", noToken).named("no token"),
		ok.headed("Impersonate-User", "system:admin").answered(forbidden).otherWords(noImpersonation).named("no right to impersonate"),
		ok.by(forger).answered(noToken).named("bad token"),
		ok.by(stranger).answered(forbidden).named("no right to create"),
		put(path, a(base, nil)).by(stranger).answered(forbidden).named("no right to update"),
		patched(path, strategicType, `{}`).by(stranger).answered(forbidden).named("no right to patch"),
		posted(path, `{`).by(stranger).answered(forbidden).named("no right, malformed"),
		patched(path, strategicType, `{}`).by(creator).after(ok).answered(forbidden).named("a creator's patch"),
		patched(path, strategicType, `{}`).at(path + "/the-one").by(limited).answered(notFound).named("a patch of the only one that may be"),
		patched(path, strategicType, `{}`).by(limited).after(ok).answered(forbidden).named("a patch of another"),
		put(path, a(base, nil)).by(updater).after(ok).named("an updater's update"),
		put(path, a(base, nil)).by(updater).answered(forbidden).named("an updater's create"),

		// paths
		ok.at(path + "/NAME").answered(noMethod).named("POST of one"),
		ok.via(http.MethodPut).answered(noMethod).named("PUT of all"),
		ok.via(http.MethodPatch).typed(strategicType).answered(noMethod).named("PATCH of all"),
		ok.at(path + "/NAME/status").via(http.MethodPut).by(writer).answered(forbidden).named("a subresource"),

		// PUT
		put(path, a(base, nil)).answered(created).named("PUT of a new name"),
		put(path, a(base, nil)).after(ok).named("PUT unchanged"),
		put(path, a(base, fields{"metadata.labels": fields{"a": "b"}})).after(ok).named("PUT of labels"),
		put(path, a(base, nil)).with("dryRun=All").answered(created).named("PUT, dry run"),
		put(path, a(base, fields{"metadata.name": "other"})).answered(badRequest).named("PUT under another name"),
		put(path, a(base, fields{"metadata.name": nil})).answered(badRequest).named("PUT without a name"),
		put(path, a(base, fields{"metadata.namespace": "other"})).answered(badRequest).named("PUT with another namespace"),
		put(path, a(base, fields{"metadata.uid": "mine"})).answered(conflict).
			otherWords(otherKey).named("PUT of a new name with a uid"),
		put(path, a(base, fields{"metadata.uid": "mine"})).after(ok).answered(conflict).
			otherWords(otherKey).named("PUT with another uid"),
		put(path, a(base, fields{"metadata.resourceVersion": "1"})).answered(created).named("PUT of a new name with a resourceVersion"),
		put(path, a(base, fields{"metadata.resourceVersion": "1"})).after(ok).answered(conflict).named("PUT with an old resourceVersion"),
		put(path, a(base, fields{"metadata.resourceVersion": "abc"})).after(ok).answered(serverError).named("PUT with a malformed resourceVersion"),
		put(path, a(base, fields{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"})).answered(created).named("PUT of a new name that is being deleted"),
		put(path, a(base, fields{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"})).after(ok).answered(invalid).named("PUT of a deletion"),
		posted(path, a(base, fields{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"})).named("a deletion on create"),
		put(path, a(base, fields{"kind": "Nonsense"})).after(ok).answered(badRequest).named("PUT of an unknown kind"),
		put(path, `{`).answered(badRequest).named("PUT malformed"),
		put(path, a(base, fields{"metadata.labels": fields{"not valid": "x"}})).after(ok).answered(invalid).named("PUT with a malformed label"),
		put(path, a(base, nil)).typed("text/plain").answered(badType).named("PUT text"),
		put(path, a(base, fields{message: long(4 << 20)})).answered(tooLarge).
			otherWords(otherLimit).named("PUT oversize"),
		put(path, a(base, nil)).with("dryRun=no").answered(invalid).named("PUT, dry run, wrong value"),

		// PATCH
		patched(path, strategicType, `{}`).answered(notFound).named("PATCH of an unknown name"),
		patched(path, mergeType, `{}`).answered(notFound).named("merge PATCH of an unknown name"),
		patched(path, jsonPatchType, `[]`).answered(notFound).named("JSON PATCH of an unknown name"),
		patched(path, strategicType, `{}`).after(ok).named("empty PATCH"),
		patched(path, strategicType, `{"metadata":{"labels":{"a":"b"}}}`).after(ok).named("PATCH of labels"),
		patched(path, mergeType, `{"metadata":{"labels":{"a":"b"}}}`).after(ok).named("merge PATCH of labels"),
		patched(path, jsonPatchType, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`).after(ok).named("JSON PATCH of labels"),
		patched(path, strategicType, `{"metadata":{"labels":{"a":"b"}}}`).with("dryRun=All").after(ok).named("PATCH, dry run"),
		patched(path, strategicType, `{`).after(ok).answered(badRequest).named("malformed PATCH"),
		patched(path, mergeType, `{`).after(ok).answered(badRequest).named("malformed merge PATCH"),
		patched(path, jsonPatchType, `{}`).after(ok).answered(badRequest).named("malformed JSON PATCH"),
		patched(path, jsonPatchType, `[{"op":"remove","path":"/nonsense"}]`).after(ok).answered(invalid).named("JSON PATCH of nothing"),
		patched(path, jsonPatchType, `[{"op":"test","path":"/reason","value":"other"}]`).after(ok).answered(invalid).named("JSON PATCH whose test fails"),
		patched(path, strategicType, `{"reason":1}`).after(ok).answered(invalid).named("PATCH with a wrong type"),
		patched(path, strategicType, `{"nonsense":1}`).with("fieldValidation=Strict").after(ok).answered(invalid).named("PATCH of an unknown field, strictly"),
		patched(path, strategicType, `{"nonsense":1}`).after(ok).named("PATCH of an unknown field"),
		patched(path, strategicType, `{"kind":"Nonsense"}`).after(ok).named("PATCH to an unknown kind"),
		patched(path, mergeType, `{"apiVersion":"nonsense/v1"}`).after(ok).answered(invalid).otherWords(otherUIDs).named("merge PATCH to an unknown version"),
		patched(path, strategicType, `{"metadata":{"name":"other"}}`).after(ok).answered(badRequest).named("PATCH of the name"),
		patched(path, strategicType, `{"metadata":{"namespace":"other"}}`).after(ok).answered(badRequest).named("PATCH of the namespace"),
		patched(path, strategicType, `{"metadata":{"uid":"other"}}`).after(ok).answered(invalid).
			otherWords(otherUIDs).named("PATCH of the uid"),
		patched(path, strategicType, `{"metadata":{"resourceVersion":"1"}}`).after(ok).answered(conflict).named("PATCH with an old resourceVersion"),
		patched(path, strategicType, `{"metadata":{"labels":{"not valid":"b"}}}`).after(ok).answered(invalid).named("PATCH of a malformed label"),
		patched(path, jsonType, `{}`).after(ok).answered(badType).otherWords(noApplyOffered).named("PATCH of no patch type"),
		patched(path, "", `{}`).after(ok).answered(badType).otherWords(noApplyOffered).named("PATCH without a type"),
		patched(path, "application/apply-patch+cbor", `{}`).after(ok).answered(badType).otherWords(noApplyOffered).named("apply, CBOR"),
		patched(path, "application/apply-patch+yaml", a(base, nil)).with("fieldManager=me").after(ok).
			unlike(noApply, badType).named("apply"),
		patched(path, strategicType, `{}`).with("force=true").after(ok).answered(invalid).named("PATCH with force"),
		patched(path, strategicType, `{}`).with("dryRun=no").after(ok).answered(invalid).named("PATCH, dry run, wrong value"),
		patched(path, strategicType, `{"`+message+`":"`+long(4<<20)+`"}`).after(ok).answered(tooLarge).
			otherWords(otherLimit).named("oversize PATCH"),
	}
}

// coreInputs are what core/v1 takes or refuses in its own way.
func coreInputs() []input {
	classic := func(changes fields) input { return posted(corePath, a(coreClassic, changes)) }
	newStyle := func(changes fields) input { return posted(corePath, a(coreNew, changes)) }
	ok := classic(nil)
	all := []input{
		posted(corePath, a(newEvent, nil)).answered(badRequest).named("the other API's body"),
		classic(fields{"message": long(5000), "reason": long(500), "type": "Odd"}).named("classic, over-long and odd"),
		classic(fields{"reason": nil, "message": nil, "type": nil, "source": nil, "count": nil}).named("classic, nearly empty"),
		classic(fields{"count": -5}).named("classic, negative count"),
		classic(fields{"series.count": 5}).named("classic, series"),
		patched(corePath, strategicType, `{"series":null}`).after(classic(fields{"series.count": 5})).named("PATCH to no series, classic"),
		patched(corePath, strategicType, `{"count":1,"lastTimestamp":"2020-01-02T03:04:05Z"}`).after(classic(fields{"count": 3})).named("a late PATCH"),
		patched(corePath, strategicType, `{"count":null,"lastTimestamp":null}`).after(ok).named("PATCH to no count and time"),
		classic(fields{"metadata.name": "UPPER_case"}).named("classic, not a DNS name"),
		classic(fields{"involvedObject.namespace": "other"}).answered(invalid).named("classic, about another namespace"),
		classic(fields{"metadata.namespace": "default", "involvedObject.namespace": nil}).
			at(strings.Replace(corePath, "NS", "default", 1)).named("classic, about an object without a namespace, in default"),
		newStyle(nil).named("new style"),
		newStyle(series).named("new style, series"),
		newStyle(fields{"series.count": 0}).named("new style, series of none"),
		newStyle(fields{"involvedObject.namespace": "other"}).named("new style, about another namespace"),
		newStyle(fields{"count": 3, "source": fields{"component": "c"}}).named("new style, classic fields too"),
		newStyle(fields{"type": "Odd"}).named("new style, odd type"),
		put(corePath, a(coreClassic, fields{"count": 2, "message": "again"})).after(ok).named("PUT of count and message"),
		put(corePath, a(coreClassic, fields{"involvedObject.namespace": "other"})).after(ok).answered(invalid).named("PUT about another namespace"),
		patched(corePath, strategicType, `{"count":2,"message":"again"}`).after(ok).named("PATCH of count and message"),
		patched(corePath, strategicType, `{"reason":"Other","involvedObject":{"name":"other"}}`).after(ok).named("PATCH of the identity"),
		patched(corePath, strategicType, `{"eventTime":"2026-01-02T03:04:05.000006Z"}`).after(ok).answered(invalid).named("PATCH to the new style"),
	}
	return append(all, newStyleInputs("reportingComponent", "message", newStyle)...)
}

// newStyleInputs are refused by both APIs.
func newStyleInputs(controller, message string, event func(fields) input) []input {
	refused := func(changes fields) input { return event(changes).answered(invalid) }
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
		event(fields{"eventTime": "yesterday"}).answered(badRequest).named("new style, malformed time"),
	}
}

// eventsInputs are what events.k8s.io/v1 takes or refuses in its own way.
func eventsInputs() []input {
	event := func(changes fields) input { return posted(eventsPath, a(newEvent, changes)) }
	refused := func(changes fields) input { return event(changes).answered(invalid) }
	ok := event(nil)
	all := []input{
		posted(eventsPath, a(coreNew, nil)).answered(badRequest).named("the other API's body"),
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
		put(eventsPath, a(newEvent, fields{"metadata.finalizers": []string{"mine"}})).after(ok).answered(invalid).named("PUT of an odd finalizer"),
		refused(fields{"deprecatedCount": 1}).named("deprecated count"),
		refused(fields{"deprecatedSource": fields{"component": "c"}}).named("deprecated source"),
		refused(fields{"deprecatedFirstTimestamp": "0001-01-01T00:00:00Z"}).named("deprecated time that is zero"),
		refused(fields{"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z", "deprecatedLastTimestamp": "2026-01-02T03:04:05Z"}).named("deprecated times"),
		event(fields{"regarding.namespace": "other"}).named("about another namespace"),
		put(eventsPath, a(newEvent, series)).after(ok).named("PUT of a series"),
		patched(eventsPath, strategicType, `{"series":{"count":2,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`).after(ok).named("PATCH of a series"),
		patched(eventsPath, strategicType, `{"series":{"count":1,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`).after(ok).answered(invalid).named("PATCH of a series of one"),
		patched(eventsPath, strategicType, `{"series":{"count":2,"lastObservedTime":"2020-01-02T03:04:06.000007Z"}}`).after(event(fields{"series.count": 3, "series.lastObservedTime": "2026-01-02T03:04:06.000007Z"})).
			named("a late PATCH"),
		patched(eventsPath, strategicType, `{"series":null}`).after(event(series)).named("PATCH to no series"),
		patched(eventsPath, strategicType, `{"series":{"count":3}}`).after(ok).answered(invalid).named("PATCH of a series without a time"),
		patched(eventsPath, strategicType, `{"metadata":{"labels":{"a":"b"}}}`).
			after(posted(corePath, a(coreNew, fields{"series.count": 0}))).named("PATCH beside an odd series"),
		patched(eventsPath, strategicType, `{"series":{"count":1}}`).
			after(posted(corePath, a(coreNew, fields{"series.count": 0}))).answered(invalid).named("PATCH of an odd series"),
		patched(eventsPath, strategicType, `{"deprecatedCount":2}`).after(posted(corePath, a(coreClassic, nil))).answered(invalid).named("PATCH of a classic Event's count"),
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
		"last time":    {"deprecatedLastTimestamp": "2026-01-02T03:04:05Z"},
		"first time":   {"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z"},
		"many of them": {"reason": "Other", "note": "other", "action": "Other", "series.count": 1},
	} {
		all = append(all,
			put(eventsPath, a(newEvent, change)).after(ok).answered(invalid).named("PUT changes the "+name),
			patched(eventsPath, mergeType, a(fields{}, change)).after(ok).answered(invalid).named("PATCH changes the "+name))
	}
	return append(all, newStyleInputs("reportingController", "note", event)...)
}
