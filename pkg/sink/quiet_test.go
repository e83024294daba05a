package sink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/ledger"
)

// What a shutdown leaves behind is returned by Close, also what was in flight.
func TestShutdownLogsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
		var err error
		if b.Sink, err = New(l.context(t.Context()), scripted(hang), b.ledger, unlimited()); err != nil {
			t.Fatal(err)
		}
		b.record(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
		l.wantLines(t)
	})
}
