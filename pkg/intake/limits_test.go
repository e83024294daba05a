package intake

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

func TestBodiesAreLimitedInTheirStructure(t *testing.T) {
	const ok, bad, large = 200, 400, 413
	const inJSON, inYAML, inProtobuf = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	for name, test := range map[string]struct {
		mediaType, body string
		code            int
	}{
		"as many values as may be":        {inJSON, list(maxValues), ok},
		"one more":                        {inJSON, list(maxValues + 1), large},
		"as many objects":                 {inJSON, strings.Repeat("{}", maxValues), ok},
		"one object more":                 {inJSON, strings.Repeat("{}", maxValues+1), large},
		"as deep as may be":               {inJSON, strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), ok},
		"one level more":                  {inJSON, strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), bad},
		"one level more of objects":       {inJSON, strings.Repeat(`{"a":`, maxDepth+1), bad},
		"commas in a string":              {inJSON, `"` + strings.Repeat(",[", maxValues) + `"`, ok},
		"a quotation mark in a string":    {inJSON, `"\"` + strings.Repeat(",", maxValues+1) + `"`, ok},
		"a backslash before the end":      {inJSON, `"\\"` + strings.Repeat(",", maxValues+1), large},
		"a string that does not end":      {inJSON, `"` + strings.Repeat(",", maxValues+1), ok},
		"a string that ends with nothing": {inJSON, `"\`, ok},
		"what the handlers refuse":        {"text/plain", list(maxValues + 1), large},
		"protobuf":                        {inProtobuf, list(maxValues + 1), ok},

		"YAML, as long as may be":    {inYAML, "a: " + strings.Repeat("x", maxYAMLBytes-3), ok},
		"YAML, one byte more":        {inYAML, "a: " + strings.Repeat("x", maxYAMLBytes-2), large},
		"YAML, as many lists":        {inYAML, strings.Repeat("[", maxYAMLLists/2) + strings.Repeat("{", maxYAMLLists/2), ok},
		"YAML, one list more":        {inYAML, strings.Repeat("[", maxYAMLLists/2) + strings.Repeat("{", maxYAMLLists/2+1), large},
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
		if got := codeOf(checkBody(test.mediaType, []byte(test.body))); got != test.code {
			t.Errorf("%s: %d, want %d", name, got, test.code)
		}
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
			if got := codeOf(checkEvent(&corev1.Event{ObjectMeta: meta})); got != want {
				t.Errorf("%s, %d more than may be: %d", name, more, got)
			}
		}
	}
}

func TestBodyOfNoTypeIsJSON(t *testing.T) {
	for header, want := range map[string]string{
		"": "application/json", "nonsense;;": "nonsense", ";x": "application/json", "application/YAML; charset=utf-8": "application/yaml",
		"text/plain": "text/plain",
	} {
		if got := mediaTypeOf(&http.Request{Header: http.Header{"Content-Type": {header}}}); got != want {
			t.Errorf("%q is %s", header, got)
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
		"nothing":             {"application/json", 0, 0},
		"a small body":        {"application/json", kib, (600 + 64) * kib},
		"a large one":         {"application/json", 100 * kib, (4*600 + 100*64) * kib},
		"in protobuf":         {"application/vnd.kubernetes.protobuf", 100 * kib, (4*600 + 100*400) * kib},
		"in YAML":             {"application/yaml", 10 * kib, (4*600 + 10*900) * kib},
		"a merge patch":       {"application/merge-patch+json", 10 * kib, (4*600 + 10*64) * kib},
		"a JSON patch":        {"application/json-patch+json", 10 * kib, (4*600 + 10*64 + 32*512) * kib},
		"what is not decoded": {"text/plain", 10 * kib, (4*600 + 10*64) * kib},
	} {
		if got := costOf(test.mediaType, test.size, 512*kib); got != test.cost {
			t.Errorf("%s: %d, want %d", name, got, test.cost)
		}
	}
	// YAML costs the most, while it may be as large as other bodies, and else protobuf.
	for maxBody, want := range map[int64]int64{
		8 * kib:    (4*600 + 8*900) * kib,
		32 * kib:   (4*600 + 32*900) * kib,
		1024 * kib: (4*600 + 1024*400) * kib,
	} {
		if got := MaxDecodeBytesOf(maxBody); got != want {
			t.Errorf("bodies of %d KiB reserve up to %d KiB, want %d", maxBody/kib, got/kib, want/kib)
		}
	}
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
	i := newIntake(t)
	long := func(n int) string { return strings.Repeat("x", n) }
	const uri, host = "/", "example.com"
	own := maxHeaderBytes - len(uri) - len(host) - 2*headerFieldBytes - len("A")
	asserted := maxAssertedBytes - 2*headerFieldBytes - len(AssertedUserHeader)
	for name, test := range map[string]struct {
		header http.Header
		code   int
	}{
		"as large as may be":            {http.Header{"A": {long(own)}}, 200},
		"one byte more":                 {http.Header{"A": {long(own + 1)}}, 431},
		"two values":                    {http.Header{"A": {long(own - headerFieldBytes), ""}}, 200},
		"two values, one byte more":     {http.Header{"A": {long(own - headerFieldBytes), "x"}}, 431},
		"as much asserted as may be":    {http.Header{AssertedUserHeader: {long(asserted)}}, 200},
		"one byte more that is":         {http.Header{AssertedUserHeader: {long(asserted + 1)}}, 431},
		"as many formats as may be":     {http.Header{"Accept": {long(maxAcceptBytes - headerFieldBytes)}}, 200},
		"formats of one byte more":      {http.Header{"Accept": {long(maxAcceptBytes - headerFieldBytes + 1)}}, 431},
		"the largest, and the asserted": {http.Header{"A": {long(own)}, AssertedUserHeader: {long(asserted)}}, 200},
	} {
		req := httptest.NewRequest(http.MethodGet, uri, nil)
		req.Header = test.header
		w := httptest.NewRecorder()
		withHeaderLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), i.metrics).ServeHTTP(w, req)
		if w.Code != test.code {
			t.Errorf("%s: answered %d", name, w.Code)
		}
	}
}

// A response has its first status code, and its length. Above the limit, Write fails.
func TestResponsesAreBufferedUpToTheirLimit(t *testing.T) {
	for name, test := range map[string]struct {
		write  func(http.ResponseWriter) error // of its last part
		code   int
		body   string
		length string
		large  bool
	}{
		"nothing":          {func(http.ResponseWriter) error { return nil }, 200, "", "", false},
		"a code":           {func(w http.ResponseWriter) error { w.WriteHeader(404); return nil }, 404, "", "", false},
		"two codes":        {func(w http.ResponseWriter) error { w.WriteHeader(404); w.WriteHeader(500); return nil }, 404, "", "", false},
		"an early one":     {func(w http.ResponseWriter) error { w.WriteHeader(103); w.WriteHeader(201); return nil }, 201, "", "", false},
		"a body":           {func(w http.ResponseWriter) error { _, err := w.Write([]byte("ten bytes.")); return err }, 200, "ten bytes.", "10", false},
		"a body, then 500": {func(w http.ResponseWriter) error { _, err := w.Write([]byte("a")); w.WriteHeader(500); return err }, 200, "a", "1", false},
		"in parts": {func(w http.ResponseWriter) error {
			_, _ = w.Write([]byte("ten "))
			_, err := w.Write([]byte("bytes."))
			return err
		}, 200, "ten bytes.", "10", false},
		"too long": {func(w http.ResponseWriter) error { _, err := w.Write([]byte("ten bytes..")); return err }, 200, "", "", true},
		"too long in parts": {func(w http.ResponseWriter) error {
			_, _ = w.Write([]byte("ten "))
			_, err := w.Write([]byte("bytes.."))
			return err
		}, 200, "ten ", "4", true},
		"a length of its own": {func(w http.ResponseWriter) error {
			w.Header().Set("Content-Length", "7")
			_, err := w.Write([]byte("ten bytes."))
			return err
		}, 200, "ten bytes.", "7", false},
	} {
		w := httptest.NewRecorder()
		a := &bufferedResponse{w: w, limit: 10}
		if err := test.write(a); (err == errResponseTooLarge) != test.large || a.tooLarge != test.large {
			t.Errorf("%s: too large %t, told %v", name, a.tooLarge, err)
		}
		if err := a.writeTo(w); err != nil || w.Code != test.code || w.Body.String() != test.body || w.Header().Get("Content-Length") != test.length {
			t.Errorf("%s: answered %d %q of length %q: %v", name, w.Code, w.Body, w.Header().Get("Content-Length"), err)
		}
	}
}
