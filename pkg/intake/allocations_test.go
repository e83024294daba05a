package intake

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A report of client-go makes fewer allocations than the handlers of the apiserver, which make hundreds. The limits have
// room for those of the race detector, which are more beside load.
func TestReportsTakeFewAllocations(t *testing.T) {
	const runs = 200
	handler := newBenchHandler()
	post := func(name string) *served {
		return newServed(http.MethodPost, reportPath, runtime.ContentTypeJSON, encoded[runtime.ContentTypeJSON](backOff(name)))
	}
	patch := func(i int) *served {
		body := fmt.Appendf(nil, `{"count":%d,"lastTimestamp":"2026-11-23T10:00:00Z"}`, i+2)
		return newServed(http.MethodPatch, reportPath+"/patched", string(types.StrategicMergePatchType), body)
	}
	post("patched").by(t, handler)
	for what, test := range map[string]struct {
		make  func(i int) *served
		limit float64
	}{
		"POST":  {func(i int) *served { return post(fmt.Sprint("a", i)) }, 185},
		"PATCH": {patch, 165},
	} {
		var all []*served
		for i := range runs + 1 { // one to warm up
			all = append(all, test.make(i))
		}
		i := 0
		got := testing.AllocsPerRun(runs, func() {
			all[i].by(t, handler)
			i++
		})
		if t.Logf("%s: %v", what, got); got > test.limit {
			t.Errorf("%s: %v allocations, more than %v", what, got, test.limit)
		}
	}
}
