package query

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/eventd/eventd/pkg/trail"
)

func TestTailsEncodeAnItemOnce(t *testing.T) {
	e := newEncodings()
	step := &trail.Step{Message: "<b>"}
	want, _ := json.Marshal(step)
	var encoded atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			got, err := e.encode(step, func() any { encoded.Add(1); return step })
			if err != nil || string(got) != string(want) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	all.Wait()
	if n := encoded.Load(); n != 1 {
		t.Errorf("encoded %d times", n)
	}
}

func TestEncodingsAreBounded(t *testing.T) {
	e := newEncodings()
	message := strings.Repeat("x", 10_000)
	for range 2000 {
		step := &trail.Step{Message: message}
		if _, err := e.encode(step, func() any { return step }); err != nil {
			t.Fatal(err)
		}
	}
	if most := maxEncodedBytes / len(message); len(e.of) > most || len(e.of) != len(e.order) || len(e.of) < most/2 {
		t.Errorf("%d items of %d bytes are kept, %d in order", len(e.of), len(message), len(e.order))
	}
}
