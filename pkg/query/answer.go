package query

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// maxAnswerBytes limits the items of an answer, as they are encoded. Above it, older ones are left out.
	maxAnswerBytes = 5 << 18
	// maxMessage and maxText limit texts of an Event of core/v1, which may have a megabyte.
	maxMessage, maxText = 16 << 10, 1 << 10
)

// typeMeta is that of a kind of the API.
func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: v1alpha1.GroupVersion.String()}
}

// writeJSON writes a whole answer that is encoded. HTML in texts is escaped.
func writeJSON(w http.ResponseWriter, code int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}

// last returns the last items that fit into an answer, at most limit, and whether others are left out.
func last[T any](items []T, limit int) (fitting []T, truncated bool) {
	n := countFitting(min(len(items), limit), func(i int) any { return items[len(items)-1-i] })
	return items[len(items)-n:], n < len(items)
}

// first returns the first items that fit into an answer, at most limit, and whether others are left out.
func first[T any](items []T, limit int) (fitting []T, truncated bool) {
	n := countFitting(min(len(items), limit), func(i int) any { return items[i] })
	return items[:n], n < len(items)
}

// countFitting returns how many of n items fit into an answer, in order.
func countFitting(n int, item func(int) any) int {
	size := 0
	for i := range n {
		data, err := json.Marshal(item(i))
		if size += len(data) + 1; err != nil || size > maxAnswerBytes {
			return i
		}
	}
	return n
}

func short(s string) string { return truncate.String(s, maxText) }
