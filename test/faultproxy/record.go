package faultproxy

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/test/await"
)

// Request is one Event write as the proxy sees it.
type Request struct {
	Verb      string // create, update or patch
	Group     string // "" or events.k8s.io
	Namespace string
	// Name is the Event's. Of a create it is read from the body, and "" if the body is
	// no Event.
	Name string
}

var (
	requestInfo = request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	writes = sets.New("create", "update", "patch")
	groups = sets.New("", "events.k8s.io")
)

// writeTarget parses method and path of a request, and reports whether it is an Event
// write.
func writeTarget(r *http.Request) (Request, bool) {
	i, err := requestInfo.NewRequestInfo(r)
	if err != nil || i.Resource != "events" || i.Subresource != "" || !groups.Has(i.APIGroup) {
		return Request{}, false
	}
	named := i.Namespace != "" && (i.Name == "") == (i.Verb == "create")
	return Request{i.Verb, i.APIGroup, i.Namespace, i.Name}, named && writes.Has(i.Verb)
}

// nameIn returns the name of the object in body, which is JSON or protobuf.
func nameIn(body []byte) string {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return ""
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}

// Entry is one Event write.
type Entry struct {
	Request
	// Fault is the kind of the fault that struck it (Fault.String), "over capacity",
	// or "".
	Fault string
	// Forwarded: it was sent to the backend.
	Forwarded bool
	// Status is the code of the backend's answer; 0 if it gave none. If the client
	// cancelled a write that no fault had struck, its effect is unknown.
	Status int
	// Answer is the code that the client was sent; 0 if none, because of the
	// fault, or because the client gave up, or the proxy was paused.
	Answer int
	// Ended: its request and its late write have ended.
	Ended bool
}

// Record has all Event writes in the order in which they came.
type Record []Entry

// Record returns a copy of all entries. An entry takes about 200 bytes and its name.
func (p *Proxy) Record() Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var r Record
	for _, e := range p.record {
		r = append(r, *e)
	}
	return r
}

// Quiet waits until no Event write is in flight, late ones included.
func (p *Proxy) Quiet(ctx context.Context) error {
	for p.Record().Count(func(e Entry) bool { return !e.Ended }) > 0 {
		if err := await.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Count returns how many entries are as wanted.
func (r Record) Count(wanted func(Entry) bool) int {
	n := 0
	for _, e := range r {
		if wanted(e) {
			n++
		}
	}
	return n
}
