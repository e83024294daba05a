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
	for n := 0; b.Loop(); n++ {
		s.Post(b, classic(fmt.Sprint("n", n), 1)).Want(b, http.StatusCreated, "")
	}
}

func BenchmarkPatch(b *testing.B) {
	s := serve(b, written())
	s.Post(b, classic("a", 1)).Want(b, http.StatusCreated, "")
	for n := 2; b.Loop(); n++ {
		s.Patch(b, "a", `{"count":%d}`, n).Want(b, http.StatusOK, "")
	}
}
