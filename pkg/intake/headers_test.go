package intake_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Headers and URLs cost no more than a body. If they are too long, the response is 431,
// before anything else.
func TestHeadersAndURLsAreLimited(t *testing.T) {
	small := make([]string, 0, 4000)
	for i := range 2000 {
		small = append(small, fmt.Sprint("X-", i), "")
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, test := range map[string]struct {
		path   string
		header []string
		code   int
	}{
		"a usual token":             {coreEvents, []string{"X-Token", long(16 << 10)}, 201},
		"almost too long":           {coreEvents, []string{"User-Agent", long(60 << 10)}, 201},
		"one large value":           {coreEvents, []string{"X-Large", long(65 << 10)}, 431},
		"many small fields":         {coreEvents, small, 431},
		"of a probe, without token": {"/readyz", append([]string{withoutToken, "true"}, small...), 431},
		"a large assertion":         {coreEvents, []string{"Eventd-Asserted-User", long(65 << 10)}, 431},
		"a large URI":               {coreEvents + "?a=" + long(65<<10), nil, 431},
		"many parameters":           {coreEvents + "?" + strings.Repeat("a=&", 20_000), nil, 201},
		"a large Accept":            {coreEvents, []string{"Accept", strings.Repeat("a/b,", 20_000)}, 431},
		"a usual Accept":            {coreEvents, []string{"Accept", strings.Repeat("a/b,", 900) + "application/json"}, 201},
		"a large field manager":     {coreEvents + "?fieldManager=" + long(1000), nil, 422},
		"a large timeout":           {coreEvents + "?timeout=" + long(1000), nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			who := &bearers{}
			s := serve(t, written(), who.set)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			a := s.Do(t, http.MethodPost, test.path, classic("a", 1), test.header...)
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
				t.Errorf("%d KiB allocated", allocated>>10)
			}
			if a.Code != test.code {
				t.Errorf("answered %d, want %d: %.300s", a.Code, test.code, a.Body)
			}
			if test.code != 431 {
				return
			}
			a.Want(t, 431, metav1.StatusReasonUnknown)
			// The connection of another replica is shared by its clients.
			if forwarded := name == "a large assertion"; forwarded == (a.Header.Get("Connection") == "close") {
				t.Errorf("forwarded: %t, Connection: %q", forwarded, a.Header.Get("Connection"))
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
