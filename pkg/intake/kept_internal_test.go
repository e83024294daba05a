package intake

import (
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Names and namespaces are parts of the URL. A view keeps them, and not the rest, which its size does not count.
func TestViewDoesNotKeepTheURL(t *testing.T) {
	const (
		requests = 200
		long     = 10 << 10
		path     = "/api/v1/namespaces/ns/events"
		event    = `{"kind":"Event","apiVersion":"v1","metadata":{"name":%q},"involvedObject":{"namespace":"ns"}}`
	)
	for name, test := range map[string]struct{ method, target, body string }{
		"POST":  {http.MethodPost, path + "?", event},
		"PUT":   {http.MethodPut, path + "/%s?", event},
		"batch": {http.MethodPost, path + "?" + batch.Query + "&", `{"kind":"EventList","apiVersion":"v1","items":[` + event + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Record = func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Created}) }
			intake := must(New(o))
			handler := must(NewHandler(ServerOptions{Intake: intake, Authenticator: accepting("jane"), Authorizer: allowing{}}))
			before := heapInUse()
			for i := range requests {
				id := fmt.Sprintf("a.%d", i)
				target := strings.Replace(test.target, "%s", id, 1) + "x=" + strings.Repeat("x", long)
				newServed(test.method, target, runtime.ContentTypeJSON, fmt.Appendf(nil, test.body, id)).by(t, handler)
			}
			kept := (heapInUse() - before) / requests
			if views := intake.names.count(); views != requests || kept > long/2 {
				t.Errorf("%d bytes are kept for each of %d views", kept, views)
			}
			goruntime.KeepAlive(handler)
		})
	}
}

func heapInUse() int64 {
	goruntime.GC()
	goruntime.GC() // what the first one has finalized
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
