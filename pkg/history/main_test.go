package history

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// smallSizes make a few versions go through everything.
var smallSizes = sizes{runVersions: 16, runBytes: 1 << 20, tailVersions: 4, tailBytes: 1 << 20, blockVersions: 5}

func newForTest(t testing.TB, maxBytes int64, s sizes) *History {
	t.Helper()
	h, err := newHistory(Options{MaxBytes: maxBytes}, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { waitSealed(h) })
	return h
}
