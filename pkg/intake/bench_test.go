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
		if a := s.Post(b, classic(fmt.Sprintf("n%d", n), 1)); a.Code != http.StatusCreated {
			b.Fatalf("%d: %s", a.Code, a.Body)
		}
	}
}

func BenchmarkPatch(b *testing.B) {
	s := serve(b, written())
	s.Post(b, classic("a", 1)).Want(b, http.StatusCreated, "")
	n := 1
	for b.Loop() {
		n++
		if a := s.Patch(b, "a", `{"count":%d}`, n); a.Code != http.StatusOK {
			b.Fatalf("%d: %s", a.Code, a.Body)
		}
	}
}
