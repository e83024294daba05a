package sizing

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// deployed returns options with the body limit of deploy/, for a number of requests.
func deployed(requests int) *app.Options {
	o := app.NewOptions()
	o.Intake.MaxBodyBytes = 128 * kib
	o.MaxRequestsInFlight = requests
	return o
}

// serve returns the handler of an intake with the options.
func serve(t *testing.T, o *app.Options, record func(*occurrence.Occurrence)) http.Handler {
	t.Helper()
	return serveAfter(t, o, func() {}, record)
}

// serveAfter is serve with a function that runs during the review of a caller.
func serveAfter(t *testing.T, o *app.Options, reviewed func(), record func(*occurrence.Occurrence)) http.Handler {
	t.Helper()
	options := o.Intake
	options.Record = record
	in, err := intake.New(options)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := intake.NewHandler(intake.ServerOptions{
		// None is refused, though all have one caller and one address.
		Intake: in, MaxInFlight: 16 * o.MaxRequestsInFlight,
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			reviewed()
			return &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}, true, nil
		}),
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func send(t *testing.T, handler http.Handler, contentType, body string) int {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/ns/events", strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer jane's")
	req.Header.Set("User-Agent", strings.Repeat("x", 15*kib))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w.Code
}

func event(i int, field, value string) string {
	return fmt.Sprintf(`{"metadata":{"name":"a%d","namespace":"ns"},"involvedObject":{"namespace":"ns"},%q:%q}`, i, field, value)
}

func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The memory of a request that waits for its write is bounded by its body.
func TestRequestsThatWaitTakeNoMoreThanIsSaid(t *testing.T) {
	const requests = 100
	o := deployed(requests)
	limit := part(o, "requests being answered").Most
	recorded := make(chan *occurrence.Occurrence, requests)
	handler := serve(t, o, func(o *occurrence.Occurrence) { recorded <- o })
	before := liveBytes()
	answers := make(chan int, requests)
	for i := range requests {
		go func() {
			answers <- send(t, handler, "application/json", event(i, "message", strings.Repeat("x", 127*kib)))
		}()
	}
	waiting := make([]*occurrence.Occurrence, requests)
	for i := range waiting {
		select {
		case waiting[i] = <-recorded:
		case code := <-answers:
			t.Fatalf("a request is answered %d", code)
		}
	}
	took := liveBytes() - before
	t.Logf("%d KiB for each request", took/requests>>10)
	if took > limit {
		t.Errorf("%d requests that wait take %d MiB, more than %d", requests, took>>20, limit>>20)
	}
	if took < limit/8 {
		t.Errorf("%d requests that wait take only %d MiB of %d", requests, took>>20, limit>>20)
	}
	for _, o := range waiting {
		o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull})
	}
	for range requests {
		<-answers
	}
}

// The memory of a request during the review of its caller is bounded by its headers. The
// buffer for its body is a constant of the server (cmd/eventd/app).
func TestRequestsOfUnknownCallersTakeNoMoreThanIsSaid(t *testing.T) {
	const requests = 100
	o := deployed(requests)
	limit := part(o, "requests of unknown callers").Most - requests*intake.UploadBufferBytes
	answer := make(chan struct{})
	handler := serveAfter(t, o, func() { <-answer }, func(o *occurrence.Occurrence) {
		o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull})
	})
	before := liveBytes()
	var sending sync.WaitGroup
	for i := range requests {
		sending.Go(func() { send(t, handler, "application/json", event(i, "message", "x")) })
	}
	// They all wait for one review, which cannot be observed.
	var took int64
	for deadline := time.Now().Add(10 * time.Second); took < limit/4 && time.Now().Before(deadline); {
		took = liveBytes() - before
	}
	t.Logf("%d KiB for each request", took/requests>>10)
	if took > limit {
		t.Errorf("%d requests of unknown callers take %d MiB, more than %d", requests, took>>20, limit>>20)
	}
	if took < limit/4 {
		t.Errorf("%d requests of unknown callers take only %d MiB of %d", requests, took>>20, limit>>20)
	}
	close(answer)
	sending.Wait()
}

func TestDecodingWorstBodiesAtOnceStaysWithinTheAdvice(t *testing.T) {
	const requests = 64
	o := deployed(requests)
	handler := serve(t, o, func(o *occurrence.Occurrence) {
		o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull})
	})
	advice := Advise([]Part{part(o, "the process itself"), part(o, "requests being answered"), part(o, "bodies being decoded")})
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(advice.GoMemLimit))
	proto := emptyOwners(127 * kib)
	bodies := []struct{ contentType, body string }{
		{"application/vnd.kubernetes.protobuf", proto}, {"application/vnd.kubernetes.protobuf", proto},
		{"application/vnd.kubernetes.protobuf", proto}, {"application/vnd.kubernetes.protobuf", proto},
		{"application/json", `{"metadata":{"ownerReferences":[` + strings.Repeat("{},", 40*kib) + `{}]}}`},
		{"application/yaml", "metadata:\n  ownerReferences:\n" + strings.Repeat("  -\n", 7*kib)},
		{"application/json", event(0, "message", strings.Repeat("<", 127*kib))},
	}
	var most atomic.Int64
	watching, stop := sampled(&most), make(chan struct{})
	go watching(stop)
	var sending sync.WaitGroup
	for i := range requests {
		sending.Go(func() {
			for range 2 {
				b := bodies[i%len(bodies)]
				send(t, handler, b.contentType, b.body)
			}
		})
	}
	sending.Wait()
	stop <- struct{}{}
	t.Logf("at most %d MiB, and GOMEMLIMIT is %d", most.Load()>>20, advice.GoMemLimit>>20)
	if most.Load() > advice.GoMemLimit {
		t.Errorf("%d MiB are more than GOMEMLIMIT, %d", most.Load()>>20, advice.GoMemLimit>>20)
	}
}

// sampled returns a function that samples the largest heap, garbage included.
func sampled(most *atomic.Int64) func(stop <-chan struct{}) {
	return func(stop <-chan struct{}) {
		ticks := time.NewTicker(time.Millisecond)
		defer ticks.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), int64(m.HeapAlloc)))
			select {
			case <-ticks.C:
			case <-stop:
				return
			}
		}
	}
}

func part(o *app.Options, what string) Part {
	for _, p := range Memory(o) {
		if p.What == what {
			return p
		}
	}
	panic(what)
}

// emptyOwners returns an Event with only empty owner references, in Kubernetes protobuf: two
// bytes become 104.
func emptyOwners(size int) string {
	field := func(number byte, data string) string {
		n := len(data)
		return string([]byte{number<<3 | 2, byte(n&0x7f | 0x80), byte(n>>7&0x7f | 0x80), byte(n >> 14)}) + data
	}
	return "k8s\x00" + field(1, field(1, "v1")+field(2, "Event")) + field(2, field(1, strings.Repeat("\x6a\x00", size/2)))
}
