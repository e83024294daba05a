package query

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/rules"
)

// Whoever closes a tail and opens another one does not get the processor sooner.
func TestExpressionsOfAllTailsHaveAShareOfOneProcessor(t *testing.T) {
	costly, err := rules.CompileExpression(`event.message.matches("(a{1,9}){1,9}b")`, "match")
	if err != nil {
		t.Fatal(err)
	}
	event := &corev1.Event{Message: strings.Repeat("a", 16<<10)}
	m := newMatches()
	if matched, took, err := m.evaluate(t.Context(), costly, event); matched || err != nil || took <= maxMatchDebt {
		t.Fatalf("%v after %s, %v", matched, took, err)
	}
	free := m.free
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("closed"))
	if _, took, err := m.evaluate(canceled, costly, event); err == nil || took > 0 {
		t.Errorf("evaluated for %s, %v", took, err)
	}
	cheap, err := rules.CompileExpression(`event.reason == "a"`, "match")
	if err != nil {
		t.Fatal(err)
	}
	if matched, _, err := m.evaluate(t.Context(), cheap, &corev1.Event{Reason: "a"}); !matched || err != nil || time.Now().Before(free) {
		t.Errorf("%v, %v, %s early", matched, err, time.Until(free))
	}
}
