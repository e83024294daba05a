package apiclient

import (
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/eventd/eventd/pkg/occurrence"
)

// FuzzUpdate reads any JSON as an Event, and writes it back with a patch: what is
// patched has the new count, and what an API can read it can still read.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"a","annotations":{"a":"b"}},"count":1,"unknown":{"x":[1]}}`))
	f.Add([]byte(`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"eventTime":"2026-01-02T03:04:05.000006Z","series":{"count":2}}`))
	f.Add([]byte(`{"count":1,"count":2,"Count":3}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, event []byte) {
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			if _, err := Decode(api, event); err != nil {
				continue
			}
			patched, err := jsonpatch.MergePatch(event, []byte(`{"metadata":{"annotations":{"eventd.io/identity":"d"}}}`))
			if err != nil {
				continue // it is no object
			}
			object, err := Decode(api, patched)
			if err != nil {
				t.Fatalf("%s can be read, and not when it was patched: %v", event, err)
			}
			if object.Annotations["eventd.io/identity"] != "d" {
				t.Errorf("%s is patched to %s", event, patched)
			}
		}
	})
}
