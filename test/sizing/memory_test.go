package sizing

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
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

// serve returns the handler of an intake with the options. reviewed is called during the
// review of a caller, and record with what is reported.
func serve(t *testing.T, o *app.Options, reviewed func(), record func(*occurrence.Occurrence)) http.Handler {
	t.Helper()
	options := o.Intake
	options.Record = record
	in, err := intake.New(options)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := intake.NewHandler(intake.ServerOptions{
		// None is refused, though all have one caller and one address.
		Intake: in, MaxInFlight: 64 * o.MaxRequestsInFlight,
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

func nothing() {}

func refuse(o *occurrence.Occurrence) {
	o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.PendingFull})
}

// send posts a body with headers of about the maximum size.
func send(t *testing.T, handler http.Handler, contentType, body string) int {
	return sendAs(t, handler, strings.Repeat("x", 11*kib), contentType, body)
}

func sendAs(t *testing.T, handler http.Handler, userAgent, contentType, body string) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/ns/events", strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer jane's")
	req.Header.Set("User-Agent", userAgent)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w.Code
}

func event(i int, field, value string) string {
	return fmt.Sprintf(`{"metadata":{"name":"a%d","namespace":"ns"},"involvedObject":{"namespace":"ns"},%q:%q}`, i, field, value)
}

// liveBytes collects garbage twice: the first time keeps what pools hold.
func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// stackMemory is that of all goroutines.
func stackMemory() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}

// measured are the requests of which the memory is measured.
const measured = 100

// wants fails unless requests take no more than a limit, and at least a part of it.
func wants(t *testing.T, took, limit, part int64) {
	t.Helper()
	t.Logf("%d KiB for each request", took/measured>>10)
	if took > limit || took < limit/part {
		t.Errorf("%d requests take %d KiB, the limit is %d", measured, took>>10, limit>>10)
	}
}

// The memory of a request that waits for its write is bounded by its body.
func TestRequestsThatWaitTakeNoMoreThanIsSaid(t *testing.T) {
	const usual = `{"kind":"Event","apiVersion":"v1","metadata":{"name":"a%d","namespace":"ns"},"involvedObject":{"namespace":"ns"},"message":"x"}`
	requests := func(o *app.Options) Part { return part(o, "requests being answered") }
	for name, test := range map[string]struct {
		agent string
		body  func(i int) string
		count int // of requests in flight, for which each counts
		limit func(*app.Options) int64
		part  int64
	}{
		"usual":   {"kubelet", func(i int) string { return fmt.Sprintf(usual, i) }, 1, func(o *app.Options) int64 { return requests(o).Usual }, 3},
		"largest": {strings.Repeat("x", 11*kib), func(i int) string { return event(i, "message", strings.Repeat("x", 127*kib)) }, 33, func(o *app.Options) int64 { return requests(o).Most }, 8},
	} {
		t.Run(name, func(t *testing.T) {
			o := deployed(measured * test.count)
			recorded, answers := make(chan *occurrence.Occurrence, measured), make(chan int, measured)
			handler := serve(t, o, nothing, func(o *occurrence.Occurrence) { recorded <- o })
			before := liveBytes() + stackMemory()
			for i := range measured {
				go func() { answers <- sendAs(t, handler, test.agent, "application/json", test.body(i)) }()
			}
			waiting := make([]*occurrence.Occurrence, measured)
			for i := range waiting {
				select {
				case waiting[i] = <-recorded:
				case code := <-answers:
					t.Fatalf("a request is answered %d", code)
				}
			}
			wants(t, liveBytes()+stackMemory()-before, test.limit(o), test.part)
			for _, o := range waiting {
				refuse(o)
			}
			for range measured {
				<-answers
			}
		})
	}
}

// The memory of a request during the review of its caller is bounded by its headers. What the
// server buffers of its body counts by its length (pkg/intake).
func TestRequestsOfUnknownCallersTakeNoMoreThanIsSaid(t *testing.T) {
	o := deployed(measured * 3 / 2) // two thirds as many may be of unknown callers
	limit := part(o, "requests of unknown callers").Most
	answer := make(chan struct{})
	handler := serve(t, o, func() { <-answer }, refuse)
	before := liveBytes() + stackMemory()
	var sending sync.WaitGroup
	for i := range measured {
		sending.Go(func() { send(t, handler, "application/json", event(i, "message", "x")) })
	}
	// They all wait for one review, which cannot be observed.
	var took int64
	for deadline := time.Now().Add(10 * time.Second); took < limit/4 && time.Now().Before(deadline); {
		took = liveBytes() + stackMemory() - before
	}
	wants(t, took, limit, 4)
	close(answer)
	sending.Wait()
}

func TestDecodingWorstBodiesAtOnceStaysWithinTheAdvice(t *testing.T) {
	const requests = 64
	o := deployed(requests)
	handler := serve(t, o, nothing, refuse)
	advice := Advise([]Part{part(o, "the process itself"), part(o, "requests being answered"), part(o, "bodies being decoded")})
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(advice.GoMemLimit))
	const protobuf = "application/vnd.kubernetes.protobuf"
	proto := emptyOwners(127 * kib)
	bodies := []struct{ contentType, body string }{
		{protobuf, proto}, {protobuf, proto}, {protobuf, proto}, {protobuf, proto},
		{"application/json", `{"metadata":{"ownerReferences":[` + strings.Repeat("{},", 40*kib) + `{}]}}`},
		{"application/yaml", "metadata:\n  ownerReferences:\n" + strings.Repeat("  -\n", 7*kib)},
		{"application/json", event(0, "message", strings.Repeat("<", 127*kib))},
	}
	var sending sync.WaitGroup
	for i := range requests {
		sending.Go(func() {
			for range 2 {
				b := bodies[i%len(bodies)]
				send(t, handler, b.contentType, b.body)
			}
		})
	}
	sent := make(chan struct{})
	go func() {
		sending.Wait()
		close(sent)
	}()
	if most := largestHeap(sent); most > advice.GoMemLimit {
		t.Errorf("%d MiB are more than GOMEMLIMIT, %d", most>>20, advice.GoMemLimit>>20)
	}
}

// largestHeap samples the largest heap, garbage included, until a channel is closed.
func largestHeap(done <-chan struct{}) (most int64) {
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, int64(m.HeapAlloc))
		select {
		case <-ticks.C:
		case <-done:
			return most
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
