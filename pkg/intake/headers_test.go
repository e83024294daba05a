package intake_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestWithLargeHeadersIsRefusedBeforeAnythingElse(t *testing.T) {
	small := make([]string, 0, 4000)
	for i := range 2000 {
		small = append(small, fmt.Sprint("X-", i), "")
	}
	for name, c := range map[string]struct {
		path    string
		header  []string
		refused bool
	}{
		"a usual token":             {coreEvents, []string{"X-Token", strings.Repeat("x", 16<<10)}, false},
		"one large value":           {coreEvents, []string{"X-Large", strings.Repeat("x", 65<<10)}, true},
		"many small fields":         {coreEvents, small, true},
		"a large URI":               {coreEvents + "?x=" + strings.Repeat("x", 65<<10), nil, true},
		"a large assertion":         {coreEvents, []string{"Eventd-Asserted-User", strings.Repeat("x", 65<<10)}, true},
		"of a probe, without token": {"/readyz", append([]string{withoutToken, "true"}, small...), true},
	} {
		t.Run(name, func(t *testing.T) {
			who := &bearers{}
			s := serve(t, written(), who.set)
			a := s.do(t, http.MethodPost, c.path, classic("a", 1), c.header...)
			if !c.refused {
				a.want(t, 201, "")
				return
			}
			a.want(t, 431, metav1.StatusReasonUnknown)
			// The connection of another replica is shared by its clients.
			if forwarded := name == "a large assertion"; forwarded == (a.header.Get("Connection") == "close") {
				t.Errorf("forwarded: %t, Connection: %q", forwarded, a.header.Get("Connection"))
			}
			if got := who.asked.Load(); got != 0 {
				t.Errorf("reviewed %d times", got)
			}
			if got := s.refused(t, "headers"); got != 1 {
				t.Errorf("%v counted", got)
			}
		})
	}
}

// Headers and URLs cost no more than a body. If they are too long, the response is 431.
func TestHeadersAndURLsAreLimited(t *testing.T) {
	s := serve(t, written())
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, test := range map[string]struct {
		query  string
		header []string
		code   int
	}{
		"header":          {header: []string{"User-Agent", long(66 << 10)}, code: 431},
		"query":           {query: "?a=" + long(66<<10), code: 431},
		"many parameters": {query: "?" + strings.Repeat("a=&", 20_000), code: 201},
		"accept":          {header: []string{"Accept", strings.Repeat("a/b,", 20_000)}, code: 431},
		"accept a few":    {header: []string{"Accept", strings.Repeat("a/b,", 900) + "application/json"}, code: 201},
		"field manager":   {query: "?fieldManager=" + long(1000), code: 422},
		"timeout":         {query: "?timeout=" + long(1000), code: 400},
		"almost too long": {header: []string{"User-Agent", long(60 << 10)}, code: 201},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			event := classic(strings.ReplaceAll(name, " ", "-"), 1)
			a := s.do(t, http.MethodPost, coreEvents+test.query, event, test.header...)
			runtime.ReadMemStats(&after)
			if a.code != test.code {
				t.Errorf("answered %d, want %d: %.300s", a.code, test.code, a.body)
			}
			if test.code == 431 && a.status(t).Status != metav1.StatusFailure {
				t.Error("no Status")
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
				t.Errorf("%d KiB allocated", allocated>>10)
			}
		})
	}
}
