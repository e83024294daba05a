package intake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/encoding/protowire"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/occurrence"
)

// wire is the writer of a response, and records what happens to it. Like those of the
// server it implements http.CloseNotifier, and what http.ResponseController calls.
type wire struct {
	*httptest.ResponseRecorder
	unwritten        *unreadResponses
	inUse            int64 // while the answer was written
	flushed          bool
	deadline         time.Time
	failing, flushes error
	closed           chan bool // of the stream
}

func (w *wire) CloseNotify() <-chan bool { return w.closed }

func (w *wire) Write(b []byte) (int, error) {
	w.inUse = w.unwritten.shares.InUse()
	if w.failing != nil {
		return 0, w.failing
	}
	return w.ResponseRecorder.Write(b)
}

func (w *wire) FlushError() error {
	w.flushed = true
	return w.flushes
}

func (w *wire) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

func abortedAs(i *Intake, reason string) float64 {
	return testutil.ToFloat64(i.metrics.aborted.WithLabelValues(reason))
}

// The memory of a response is counted until it has been written: until its handler
// returns, or with HTTP/2 until its stream ends.
func TestResponsesAreCountedUntilTheyAreWritten(t *testing.T) {
	broken := errors.New("broken pipe")
	for name, test := range map[string]struct {
		method           string
		version          int // of HTTP; 0 is none, in process
		failing, flushes error
		aborted          float64
		body             string // the handler reads five bytes
		unread           int    // that the server buffers
	}{
		"in process":                             {http.MethodPost, 0, nil, broken, 0, "", 0},
		"HTTP/1.1":                               {http.MethodPost, 1, nil, nil, 0, "", 0},
		"HTTP/1.1, not written":                  {http.MethodPost, 1, broken, nil, 1, "", 0},
		"HTTP/1.1, not flushed":                  {http.MethodPost, 1, nil, broken, 1, "", 0},
		"HTTP/1.1, HEAD, of which nothing is":    {http.MethodHead, 1, http.ErrBodyNotAllowed, nil, 0, "", 0},
		"HTTP/2":                                 {http.MethodPost, 2, nil, broken, 0, "", 0},
		"HTTP/2, not written":                    {http.MethodPost, 2, broken, nil, 1, "", 0},
		"HTTP/2, HEAD, of which nothing is sent": {http.MethodHead, 2, http.ErrBodyNotAllowed, nil, 0, "", 0},
		"HTTP/1.1, a body":                       {http.MethodPost, 1, nil, nil, 0, "left over", 0},
		"HTTP/2, a body that is read":            {http.MethodPost, 2, nil, nil, 0, "read", 0},
		"HTTP/2, a body that is left":            {http.MethodPost, 2, nil, nil, 0, "left over", len("left over")},
		"HTTP/2, a long body that is left":       {http.MethodPost, 2, nil, nil, 0, strings.Repeat("x", 2*UploadBufferBytes), UploadBufferBytes},
	} {
		bubble(t, name, func(t *testing.T) {
			i := newIntake()
			u := newUnreadResponses(i)
			ctx := t.Context()
			if test.version > 0 {
				ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{})
			}
			req := httptest.NewRequestWithContext(ctx, test.method, "/", strings.NewReader(test.body))
			req.ProtoMajor = test.version
			req.Header.Set("Padding", strings.Repeat("x", 1000)) // which the server keeps as long
			req.Header.Set(AssertedUserHeader, "x")
			own, asserted := headerBytes(req)
			w := &wire{ResponseRecorder: httptest.NewRecorder(), unwritten: u, failing: test.failing, flushes: test.flushes, closed: make(chan bool)}
			u.buffered(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.CopyN(io.Discard, req.Body, 5)
				equal(t, "bytes before there is an answer", u.shares.InUse(), 0)
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte("answer"))
			})).ServeHTTP(w, req)

			equal(t, "bytes while it is written", w.inUse, int64(unreadOverhead+own+asserted+test.unread+len("answer")))
			equal(t, "counted when its handler has returned", u.shares.InUse() > 0, test.version == 2)
			equal(t, "flushed", w.flushed, test.version == 1 && test.failing == nil)
			equal(t, "deadline", w.deadline, time.Now().Add(writeTimeout))
			equal(t, "responses that were not written", abortedAs(i, abortedWrite), test.aborted)
			if test.failing == nil {
				equal(t, "code", w.Code, http.StatusCreated)
				equal(t, "body", w.Body.String(), "answer")
			}
			close(w.closed)
			synctest.Wait()
			equal(t, "bytes when all is over", u.shares.InUse(), 0)
		})
	}
}

// A response above its limit, or above the share of its caller, is aborted before the
// first byte.
func TestLargeResponsesAreAborted(t *testing.T) {
	for name, test := range map[string]struct {
		tenant string // "" if it is unknown
		used   int64  // of its share
		size   int
		reason string
	}{
		"of a known caller, above its share":    {"jane", DefaultMaxUnreadBytes / 2, 1, abortedShare},
		"of an unknown caller, above its share": {"", DefaultMaxUnreadBytes / 2, 1, abortedShare},
		"above the limit of one":                {"jane", 0, DefaultMaxUnreadBytes, abortedTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIntake()
			u := newUnreadResponses(i)
			req, w := requestWith("", ""), httptest.NewRecorder()
			of := flowOfAddress(req)
			if test.tenant != "" {
				of = flow{Tenant: test.tenant}
			}
			equal(t, "the share is free", u.shares.Acquire(of, test.used), true)
			defer func() {
				equal[any](t, "panic", recover(), http.ErrAbortHandler)
				equal(t, "counted", abortedAs(i, test.reason), 1)
				equal(t, "bytes written", w.Body.Len(), 0)
				equal(t, "bytes in use", u.shares.InUse(), test.used)
			}()
			u.buffered(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if test.tenant != "" {
					call := callOf(req.Context())
					call.user = test.tenant
					call.authenticated.Store(true)
				}
				_, _ = w.Write(make([]byte, test.size))
			})).ServeHTTP(w, req)
		})
	}
}

// A response has its first status code, and its length. Above the limit, Write fails.
func TestResponsesAreBufferedUpToTheirLimit(t *testing.T) {
	for name, test := range map[string]struct {
		steps  []any // a code or a part of the body
		code   int
		body   string
		length string
		large  bool
	}{
		"nothing":             {nil, 200, "", "", false},
		"a code":              {[]any{404}, 404, "", "", false},
		"two codes":           {[]any{404, 500}, 404, "", "", false},
		"an early one":        {[]any{103, 201}, 201, "", "", false},
		"a body":              {[]any{"ten bytes."}, 200, "ten bytes.", "10", false},
		"a body, then 500":    {[]any{"a", 500}, 200, "a", "1", false},
		"in parts":            {[]any{"ten ", "bytes."}, 200, "ten bytes.", "10", false},
		"too long":            {[]any{"ten bytes.."}, 200, "", "", true},
		"too long in parts":   {[]any{"ten ", "bytes.."}, 200, "ten ", "4", true},
		"a length of its own": {[]any{http.Header{"Content-Length": {"7"}}, "ten bytes."}, 200, "ten bytes.", "7", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := &bufferedResponse{w: w, limit: 10}
			var failed error
			for _, step := range test.steps {
				switch step := step.(type) {
				case http.Header:
					r.Header().Set("Content-Length", step.Get("Content-Length"))
				case int:
					r.WriteHeader(step)
				case string:
					_, failed = r.Write([]byte(step))
				}
			}
			equal(t, "fails", failed == errResponseTooLarge, test.large)
			equal(t, "too large", r.tooLarge, test.large)
			equal(t, "error", r.writeTo(w), nil)
			equal(t, "code", w.Code, test.code)
			equal(t, "body", w.Body.String(), test.body)
			equal(t, "length", w.Header().Get("Content-Length"), test.length)
		})
	}
}

// The refusal of a terminating namespace is cached for a second, and may be that of a
// write in the other API.
func TestRefusalHasTheAPIOfTheRequest(t *testing.T) {
	terminating := errors.New("unable to create new content")
	of := func(api occurrence.API, name string) metav1.Status {
		resource := schema.GroupResource{Group: api.GroupVersion().Group, Resource: "events"}
		return apierrors.NewForbidden(resource, name, terminating).ErrStatus
	}
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		for _, written := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			err := notWritten(&report{key: key{"ns", "a"}, occurrence: &occurrence.Occurrence{API: api}, settlement: occurrence.Settlement{
				Outcome: occurrence.Dropped, Reason: occurrence.NamespaceTerminating,
				Err: &apierrors.StatusError{ErrStatus: of(written, "stored")},
			}})
			equal[error](t, "error", err, &apierrors.StatusError{ErrStatus: of(api, "a")})
		}
	}
}

// codeOf is the code that an error is answered with; 200 for none.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if status, ok := err.(apierrors.APIStatus); ok {
		return int(status.Status().Code)
	}
	return http.StatusInternalServerError
}

const inJSONType, inYAML, inProtobuf = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"

func TestBodiesAreLimitedInTheirStructure(t *testing.T) {
	const ok, bad, large = 200, 400, 413
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	enveloped := func(kind string, raw []byte) string {
		message, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: kind}, Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return string(protobufPrefix) + string(message)
	}
	empty := func(n int) []byte { return bytes.Repeat([]byte{15<<3 | byte(protowire.BytesType), 0}, n) }
	fields := func(n int) string { return enveloped("", empty(n)) }
	// A decoder merges what a message has of one field.
	metadata := func(n, times int) string {
		one := protowire.AppendBytes(protowire.AppendTag(nil, metadataField, protowire.BytesType), empty(n))
		return enveloped("Event", bytes.Repeat(one, times))
	}
	for name, test := range map[string]struct {
		mediaType, body string
		code            int
	}{
		"as many values as may be":        {inJSONType, list(maxValues), ok},
		"one more":                        {inJSONType, list(maxValues + 1), large},
		"as many objects":                 {inJSONType, strings.Repeat("{}", maxValues), ok},
		"one object more":                 {inJSONType, strings.Repeat("{}", maxValues+1), large},
		"as deep as may be":               {inJSONType, strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), ok},
		"one level more":                  {inJSONType, strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), bad},
		"one level more of objects":       {inJSONType, strings.Repeat(`{"a":`, maxDepth+1), bad},
		"commas in a string":              {inJSONType, `"` + strings.Repeat(",[", maxValues) + `"`, ok},
		"a quotation mark in a string":    {inJSONType, `"\"` + strings.Repeat(",", maxValues+1) + `"`, ok},
		"a backslash before the end":      {inJSONType, `"\\"` + strings.Repeat(",", maxValues+1), large},
		"a string that does not end":      {inJSONType, `"` + strings.Repeat(",", maxValues+1), ok},
		"a string that ends with nothing": {inJSONType, `"\`, ok},
		"what the handlers refuse":        {"text/plain", list(maxValues + 1), large},
		"protobuf that is none":           {inProtobuf, list(maxValues + 1), ok},
		"as many fields":                  {inProtobuf, fields(maxValues), ok},
		"one field more":                  {inProtobuf, fields(maxValues + 1), large},
		"as many, of two metadata":        {inProtobuf, metadata(maxValues/2-1, 2), ok},
		"one more, of two metadata":       {inProtobuf, metadata(maxValues/2, 2), large},
		"no Event, as long as may be":     {inProtobuf, enveloped("DeleteOptions", make([]byte, smallBody)), bad},
		"no Event, one byte more":         {inProtobuf, enveloped("DeleteOptions", make([]byte, smallBody+1)), large},

		"YAML, as long as may be":    {inYAML, "a: " + strings.Repeat("x", maxYAMLBytes-3), ok},
		"YAML, one byte more":        {inYAML, "a: " + strings.Repeat("x", maxYAMLBytes-2), large},
		"YAML, as many lists":        {inYAML, strings.Repeat("[", maxYAMLLists/2) + strings.Repeat("{", maxYAMLLists/2), ok},
		"YAML, one list more":        {inYAML, strings.Repeat("[", maxYAMLLists/2) + strings.Repeat("{", maxYAMLLists/2+1), large},
		"YAML, inside of words":      {inYAML, "a: 0&x9&xa&xz&xA&xZ&x\nb: *y\n", ok},
		"YAML, an anchor, no alias":  {inYAML, "a: &x b\n", ok},
		"YAML, an alias":             {inYAML, "a: &x b\nc: *x\n", bad},
		"YAML, an alias in a list":   {inYAML, "a: &x b\nc: [1, {d: *x}]\n", bad},
		"YAML, begins with its mark": {inYAML, "*x : &x b", bad},
		"YAML, ends with an anchor":  {inYAML, "&x a: 'b*'", ok},
		"YAML, both in texts":        {inYAML, "a: 'R&D *x'\n", ok},
		"YAML, an alias of nothing":  {inYAML, "a: 'R&D'\nb: *x\n", ok},
		"YAML, which is none":        {inYAML, "a: [*x, &", ok},
		"YAML, texts that look so":   {inYAML, "a: '&x *y'", bad},
	} {
		equal(t, name, codeOf(checkBody(test.mediaType, []byte(test.body))), test.code)
	}
}

func TestItemsOfAnEventAreLimited(t *testing.T) {
	of := func(n int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[strconv.Itoa(i)] = ""
		}
		return m
	}
	for more, want := range map[int]int{0: 200, 1: 413} {
		for name, meta := range map[string]metav1.ObjectMeta{
			"owners":      {OwnerReferences: make([]metav1.OwnerReference, maxItems+more)},
			"finalizers":  {Finalizers: make([]string, maxItems+more)},
			"labels":      {Labels: of(maxItems + more)},
			"annotations": {Annotations: of(maxItems + more)},
			"both":        {Labels: of(maxItems / 2), Annotations: of(maxItems/2 + more)},
		} {
			equal(t, name, codeOf(checkEvent(&corev1.Event{ObjectMeta: meta})), want)
		}
	}
}

// The figures are those that TestDecodingAllocatesNoMoreThanItReserves has measured.
func TestWhatDecodingReserves(t *testing.T) {
	const kib = int64(1 << 10)
	for name, test := range map[string]struct {
		mediaType  string
		size, cost int64
	}{
		"nothing":             {inJSONType, 0, 0},
		"a small body":        {inJSONType, kib, (600 + 64) * kib},
		"a large one":         {inJSONType, 100 * kib, (4*600 + 100*64) * kib},
		"in protobuf":         {inProtobuf, 100 * kib, (4*600 + 100*64) * kib},
		"in YAML":             {inYAML, 10 * kib, (4*600 + 10*900) * kib},
		"a merge patch":       {"application/merge-patch+json", 10 * kib, (4*600 + 10*64) * kib},
		"a JSON patch":        {"application/json-patch+json", 10 * kib, (4*600 + 10*64 + 32*512) * kib},
		"what is not decoded": {"text/plain", 10 * kib, (4*600 + 10*64) * kib},
	} {
		equal(t, name, costOf(test.mediaType, test.size, 512*kib), test.cost)
	}
	equal(t, "half of a budget", newDecodeBudget(1000).each, 500)
	// YAML costs the most, while it may be as large as other bodies, and else a JSON patch of a view.
	equal(t, "bodies of 8 KiB", MaxDecodeBytesOf(8*kib), (4*600+8*900)*kib)
	equal(t, "bodies of 16 KiB", MaxDecodeBytesOf(16*kib), (4*600+16*900)*kib)
	equal(t, "bodies of 1 MiB", MaxDecodeBytesOf(1024*kib), (4*600+1024*(64+64+32))*kib)
}

// The limit is that of the process, so a lower one that is set already stays.
func TestLimitOfCopiesIsTheLowest(t *testing.T) {
	before := atomic.LoadInt64(&jsonpatch.AccumulatedCopySizeLimit)
	defer atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, before)
	for _, test := range []struct{ existing, maxBody, want int64 }{
		{0, 1 << 20, 1 << 20},
		{0, 8 << 20, 3 << 20},
		{1 << 10, 1 << 20, 1 << 10},
		{2 << 20, 1 << 20, 1 << 20},
		{1 << 20, 1 << 20, 1 << 20},
		{-1, 1 << 20, 1 << 20},
	} {
		atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, test.existing)
		limitCopies(test.maxBody)
		if got := atomic.LoadInt64(&jsonpatch.AccumulatedCopySizeLimit); got != test.want {
			t.Errorf("%d and bodies of %d: %d, want %d", test.existing, test.maxBody, got, test.want)
		}
	}
}

func TestHeadersAreLimitedToTheByte(t *testing.T) {
	i := newIntake()
	long := func(n int) string { return strings.Repeat("x", n) }
	own := maxHeaderBytes - len("/") - len("example.com") - headerFieldBytes - headerValueBytes - len("A")
	asserted := maxAssertedBytes - headerFieldBytes - headerValueBytes - len(AssertedUserHeader)
	for name, test := range map[string]struct {
		header http.Header
		code   int
	}{
		"as large as may be":            {http.Header{"A": {long(own)}}, 200},
		"one byte more":                 {http.Header{"A": {long(own + 1)}}, 431},
		"two values":                    {http.Header{"A": {long(own - headerValueBytes), ""}}, 200},
		"two values, one byte more":     {http.Header{"A": {long(own - headerValueBytes), "x"}}, 431},
		"as much asserted as may be":    {http.Header{AssertedUserHeader: {long(asserted)}}, 200},
		"one byte more that is":         {http.Header{AssertedUserHeader: {long(asserted + 1)}}, 431},
		"as many formats as may be":     {http.Header{"Accept": {long(maxAcceptBytes - headerValueBytes)}}, 200},
		"formats of one byte more":      {http.Header{"Accept": {long(maxAcceptBytes - headerValueBytes + 1)}}, 431},
		"of a replica":                  {http.Header{"A": {long(own + maxPeerBytes)}, AssertedUserHeader: {"x"}}, 200},
		"of a replica, one byte more":   {http.Header{"A": {long(own + maxPeerBytes + 1)}, AssertedUserHeader: {"x"}}, 431},
		"the largest, and the asserted": {http.Header{"A": {long(own)}, AssertedUserHeader: {long(asserted)}}, 200},
	} {
		req, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		req.Header = test.header
		i.metrics.withHeaderLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, req)
		equal(t, name, w.Code, test.code)
	}
}

// Only the watch is read of the options of a list, as metav1.ListOptions has it.
func TestOptionsOfAListAreNotParsed(t *testing.T) {
	for query, verb := range map[string]string{
		"": "list", "?limit=x": "list", "?watch": "watch", "?watch=1": "watch", "?watch=0": "list", "?watch=False": "list",
		"?fieldSelector=metadata.name=a": "list", "?fieldSelector=metadata.name=a&watch=true": "watch",
	} {
		info := must(newResolver().NewRequestInfo(httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/ns/events"+query, nil)))
		equal(t, query, [2]string{info.Verb, info.Name}, [2]string{verb, ""})
	}
}
