package query

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/pkg/trail"
)

const (
	// matchTurns are the turns at once, and matchRest for how long each rests, in times of what it took. So to evaluate
	// the expressions of a tenant takes a quarter of one processor, and those of all half of one; to compile them as much.
	matchTurns, matchRest = 2, 3
	// matchTurn is how long a turn evaluates.
	matchTurn = 5 * time.Millisecond
	// maxCompileError limits what a client is told of a wrong expression, which may be wrong at each place.
	maxCompileError = 4 << 10
	// maxTails is how many may wait: more than there are tails and queries.
	maxTails = 1024
)

// matches compiles and evaluates the expressions of all tails, one of a tenant at a time each, fairly between tenants. A client that
// goes away and begins anew does not get its turn sooner. To compile takes up to 30 ms, for which no evaluation waits.
type matches struct{ compilations, evaluations *fairqueue.Turns }

func newMatches() (*matches, error) {
	compilations, err := fairqueue.NewTurns("compilations", matchTurns, matchTurns/2, matchRest, maxTails)
	if err != nil {
		return nil, err
	}
	evaluations, err := fairqueue.NewTurns("evaluations", matchTurns, matchTurns/2, matchRest, maxTails)
	return &matches{compilations, evaluations}, err
}

// compile returns an expression, or the Status of the answer.
func (m *matches) compile(ctx context.Context, caller, text string) (expression *rules.Expression, err error) {
	if failed := inTurn(ctx, m.compilations, caller, func() { expression, err = rules.CompileExpression(text, v1alpha1.ParamMatch) }); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(truncate.String(err.Error(), maxCompileError))
	}
	return expression, nil
}

// evaluate returns which of some Events match, and how long that took.
func (m *matches) evaluate(ctx context.Context, caller string, expression *rules.Expression, events []*corev1.Event) (matched []bool, took time.Duration, err error) {
	matched = make([]bool, len(events))
	for i := 0; i < len(events); {
		if err := inTurn(ctx, m.evaluations, caller, func() {
			began := time.Now()
			for ; i < len(events) && time.Since(began) < matchTurn; i++ {
				matched[i] = expression.Matches(events[i])
			}
			took += time.Since(began)
		}); err != nil {
			return nil, took, err
		}
	}
	return matched, took, nil
}

// inTurn calls a function when it is the turn of a caller. Its error is the cause of ctx, or 503.
func inTurn(ctx context.Context, turns *fairqueue.Turns, caller string, work func()) error {
	switch {
	case turns.Run(ctx, shares.FlowOf(caller, ""), work):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return intake.Unavailable(1, "too many queries wait")
}

// eventOf is what an expression sees of a step: the Event that it is about, as far as the trail knows it. The
// rest is empty, also the version of the apiVersion of its object. The count is that of the step, and its time the last one of the Event.
func eventOf(step *trail.Step) *corev1.Event {
	o, apiVersion := step.Regarding, ""
	switch o.Group {
	case "":
	case v1alpha1.GroupCore:
		apiVersion = "v1"
	default:
		apiVersion = o.Group + "/"
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: step.Namespace, Name: step.Event},
		InvolvedObject: corev1.ObjectReference{APIVersion: apiVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, FieldPath: o.FieldPath},
		Type:           step.Type, Reason: step.Reason, Message: step.Message, ReportingController: step.Reporter,
		Count:         int32(min(step.Occurrences, math.MaxInt32)),
		LastTimestamp: metav1.NewTime(step.Time),
	}
}
