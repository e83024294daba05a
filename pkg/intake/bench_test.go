package intake_test

import (
	"fmt"
	"net/http"
	"testing"
)

// What the intake itself costs, without a network and with a pipeline that
// settles at once.

func BenchmarkPost(b *testing.B) {
	s := serve(b, written())
	n := 0
	for b.Loop() {
		n++
		if a := s.post(b, classic(fmt.Sprintf("n%d", n), 1)); a.code != http.StatusCreated {
			b.Fatalf("%d: %s", a.code, a.body)
		}
	}
}

func BenchmarkPatch(b *testing.B) {
	s := serve(b, written())
	s.post(b, classic("a", 1)).want(b, http.StatusCreated, "")
	n := 1
	for b.Loop() {
		n++
		if a := s.patch(b, "a", `{"count":%d}`, n); a.code != http.StatusOK {
			b.Fatalf("%d: %s", a.code, a.body)
		}
	}
}
