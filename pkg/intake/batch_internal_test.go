package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

// gate is a Forwarder of a process whose terms end after some records.
type gate struct {
	Forwarder
	lasts   int // records of the first term
	handled []bool
}

func (g *gate) Begin() Forwarding                 { return g }
func (g *gate) AwaitLeader(context.Context) error { return nil }
func (g *gate) End()                              {}

// Handle has the request handled in a term that may end, and in a further one if nothing was recorded.
func (g *gate) Handle(_ context.Context, w http.ResponseWriter, r *Received) error {
	checks := 0
	first := Term{Number: 1, Leading: func() bool { checks++; return checks <= g.lasts }}
	for _, term := range []Term{first, {Number: 2}} {
		ok := r.Handle(w, term)
		if g.handled = append(g.handled, ok); ok {
			return nil
		}
	}
	return nil
}

// A batch of which nothing was recorded when the term ended is handled by the next leader. One of which
// a part was recorded is answered, and the rest can be sent again.
func TestBatchIsHandledInTheNextTermUnlessAPartIsRecorded(t *testing.T) {
	for lasts, want := range map[int]struct {
		handled string
		codes   string
	}{
		0: {"[false true]", "[201 201 201]"},
		2: {"[true]", "[201 201 503]"},
		3: {"[true]", "[201 201 201]"},
	} {
		t.Run(fmt.Sprint(lasts), func(t *testing.T) {
			o := DefaultOptions()
			o.Record = func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Created}) }
			g := &gate{lasts: lasts}
			allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", nil
			})
			handler := must(NewHandler(ServerOptions{Intake: must(New(o)), Authenticator: accepting("jane"), Authorizer: allow, Forwarder: g}))
			items := make([]string, 3)
			for i := range items {
				items[i] = fmt.Sprintf(`{"metadata":{"name":"a%d"},"involvedObject":{"namespace":"ns"}}`, i)
			}
			req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/events?"+batch.Query,
				strings.NewReader(`{"kind":"EventList","apiVersion":"v1","items":[`+strings.Join(items, ",")+`]}`))
			req.Header.Set("Content-Type", runtime.ContentTypeJSON)
			req.Header.Set("Authorization", "Bearer token")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			equal(t, "handled", fmt.Sprint(g.handled), want.handled)
			var answer batch.Answer
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			var codes []int32
			for _, status := range must(answer.Statuses(3)) {
				codes = append(codes, status.Code)
			}
			equal(t, "codes", fmt.Sprint(codes), want.codes)
		})
	}
}

// What is no Event of a list costs nothing: 500,000 empty ones are refused before any is decoded.
func TestListOfNothingIsRefusedBeforeItIsDecoded(t *testing.T) {
	for mediaType, body := range map[string]string{
		runtime.ContentTypeJSON:     `{"kind":"EventList","apiVersion":"v1","items":[` + strings.Repeat("{},", 300<<10) + `{}]}`,
		runtime.ContentTypeProtobuf: "k8s\x00\x12" + string(appendLength(strings.Repeat("\x12\x00", 500<<10))),
	} {
		most := 4 * float64(len(body)) // bytes
		allocated := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := splitList(occurrence.CoreV1, mediaType, []byte(body)); err == nil || !strings.Contains(err.Error(), "limit is 1000 events") {
					b.Fatal(err)
				}
			}
		}).AllocedBytesPerOp()
		if float64(allocated) > most {
			t.Errorf("%s: %d bytes are allocated for %d", mediaType, allocated, len(body))
		}
	}
}

// Errors are longer than the Events that they are about. Those of a batch that waits for one of its Events take
// no more memory than their text in the answer.
func TestErrorsOfABatchThatWaitsTakeLittleMemory(t *testing.T) {
	const items = batch.MaxItems - 1
	o := DefaultOptions()
	recorded := make(chan *occurrence.Occurrence, 1)
	o.Record = func(o *occurrence.Occurrence) { recorded <- o }
	b := &batches{storage: newStorage(must(New(o)), occurrence.CoreV1, nil), control: testFlowControl()}
	var labels []string
	for i := range 2 * maxErrors {
		labels = append(labels, fmt.Sprintf(`"!%d":""`, i))
	}
	list := `{"metadata":{"name":"waits"},"involvedObject":{"namespace":"ns"}}` +
		strings.Repeat(`,{"metadata":{"name":"a","labels":{`+strings.Join(labels, ",")+`}}}`, items)
	l := must(splitList(occurrence.CoreV1, runtime.ContentTypeJSON, []byte(`{"kind":"EventList","apiVersion":"v1","items":[`+list+`]}`)))
	ctx := request.WithNamespace(withCall(t.Context(), &call{seat: &seat{seats: testSeats(1, 1)}}), "ns")
	text := errorText(maxErrorText)
	heap := func() int64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	results := b.record(ctx, l, false, &text)
	if kept := heap() - before; kept > 4*maxErrorText {
		t.Errorf("%d KiB are kept for %d errors", kept>>10, items)
	}
	(<-recorded).Settled(occurrence.Settlement{Outcome: occurrence.Created})
	for i := range results {
		results[i].await(ctx, b.storage, &text)
		if status := results[i].status(); i == 0 && status.Code != http.StatusCreated || i > 0 && status.Code != http.StatusUnprocessableEntity {
			t.Fatalf("%d: %+v", i, status)
		}
	}
}

// The errors of a batch have the text that it has left, to the byte. What a client does then is left of each.
func TestTextOfErrorsIsLimitedToTheByte(t *testing.T) {
	full := &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: metav1.StatusFailure, Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "1",
		Details: &metav1.StatusDetails{Name: "22", RetryAfterSeconds: 7, Causes: []metav1.StatusCause{{Message: "333", Field: "4444"}, {Field: "5"}}},
	}}
	kept := full.ErrStatus
	kept.TypeMeta = metav1.TypeMeta{}
	short := metav1.Status{Status: metav1.StatusFailure, Code: 429, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 7}}
	text := errorText(11 + 10)
	equal(t, "as much as may be", text.limit(full).ErrStatus, kept)
	equal(t, "one byte more", text.limit(full).ErrStatus, short)
	equal(t, "an error without details", text.limit(apierrors.NewBadRequest("x")).ErrStatus.Details, nil)
	text = 11
	equal(t, "all that is left", text.limit(full).ErrStatus, kept)
}

// An Event of a batch that has to wait for its turn is refused for now, unless the time of its batch is over.
func TestBatchThatFindsNoSeatIsRefusedForNow(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, want := range map[context.Context]int{t.Context(): http.StatusTooManyRequests, over: http.StatusGatewayTimeout} {
		s := &seat{seats: testSeats(1, 1)}
		s.end()
		err := (&batches{}).yield(withCall(ctx, &call{seat: s}))
		equal(t, "code", codeOf(err), want)
		seconds, again := apierrors.SuggestsClientDelay(err)
		equal(t, "to be sent again", again && seconds > 0, want == http.StatusTooManyRequests)
	}
}

// A replica that has lost the answer to a batch does not decode it: its Events have names, and there is no limit to
// what its body may be decoded as.
func TestBatchIsNeverUnnamed(t *testing.T) {
	req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/events?"+batch.Query, nil)
	ctx := request.WithRequestInfo(req.Context(), must(newResolver().NewRequestInfo(req)))
	r := &Received{Request: req.WithContext(ctx), Body: []byte(`{"kind":"Event","apiVersion":"v1","metadata":{"generateName":"a-"}}`)}
	equal(t, "unnamed", r.Unnamed(), false)
	r.Request.URL.RawQuery = ""
	equal(t, "unnamed, alone", r.Unnamed(), true)
}

// A replica that has lost the answer to a POST decodes it once more, and gives back what it has reserved for that.
func TestNothingStaysReservedOfAnEventWhoseAnswerIsLost(t *testing.T) {
	req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/events", nil)
	ctx := request.WithRequestInfo(req.Context(), must(newResolver().NewRequestInfo(req)))
	budget := newDecodeBudget(2 * smallCost)
	ctx = withCall(ctx, &call{decoding: decoding{budget: budget, cost: smallCost}})
	for body, want := range map[string]bool{
		`{"kind":"Event","apiVersion":"v1","metadata":{"generateName":"a-"}}`: true,
		`{"kind":"Event","apiVersion":"v1","metadata":{"name":"a"}}`:          false,
		`{`: false,
	} {
		r := &Received{Request: req.WithContext(ctx), Body: []byte(body)}
		equal(t, "unnamed", r.Unnamed(), want)
		all, err := budget.tryReserve(smallCost)
		if err != nil {
			t.Fatalf("%s: something is still reserved: %v", body, err)
		}
		all.release()
	}
}

// appendLength returns a field of bytes without its tag.
func appendLength(value string) []byte {
	n, out := len(value), []byte(nil)
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(append(out, byte(n)), value...)
}

// BenchmarkBatch is what one report of a batch costs in the handler, as BenchmarkHandler is for one alone.
func BenchmarkBatch(b *testing.B) {
	for _, benchmark := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		b.Run(benchmark, func(b *testing.B) { benchmarkBatch(b, benchmark) })
	}
}

func benchmarkBatch(b *testing.B, mediaType string) {
	const size = 500
	o := DefaultOptions()
	o.Record = func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Merged}) }
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	handler := must(NewHandler(ServerOptions{Intake: must(New(o)), Authenticator: accepting("system:node:node-17"), Authorizer: allow}))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		list := &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}
		for i := range size {
			list.Items = append(list.Items, *backOff(fmt.Sprintf("web-0.%d-%d", n, i)))
		}
		var body []byte
		if mediaType == runtime.ContentTypeJSON {
			body = must(json.Marshal(list))
		} else {
			unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Raw: must(list.Marshal())}
			body = append([]byte("k8s\x00"), must(unknown.Marshal())...)
		}
		req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/shop/events?"+batch.Query, bytes.NewReader(body))
		req.Header.Set("Content-Type", mediaType)
		req.Header.Set("Authorization", "Bearer token")
		w := httptest.NewRecorder()
		b.StartTimer()
		if handler.ServeHTTP(w, req); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "others") {
			b.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*size), "µs/event")
}
