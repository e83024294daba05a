package sink

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/ledger"
)

// A client that ends its goroutine, as one that calls t.FailNow does, costs what
// it was asked for and not the process.
func TestClientThatEndsItsGoroutineDoesNotEndTheProcess(t *testing.T) {
	const child = "EVENTD_TEST_GOEXIT"
	if os.Getenv(child) == "" {
		run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		run.Env = append(os.Environ(), child+"=1")
		if out, err := run.CombinedOutput(); err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			t.Errorf("%v: %s", err, first)
		}
		return
	}
	c := scripted(func(context.Context, verb) (*corev1.Event, error) { runtime.Goexit(); return nil, nil })
	b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
	var err error
	if b.Sink, err = New(t.Context(), c, b.ledger, unlimited()); err != nil {
		t.Fatal(err)
	}
	b.record(0)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.Close(ctx)
}
