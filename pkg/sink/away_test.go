package sink

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An apiserver that has been away and has just started answers 503, 429 or, until
// it has read its rules, 403. However long it was away, that is no reason to give
// anything up.
func TestFirstAnswersOfAnApiserverThatIsBackCostNothing(t *testing.T) {
	for name, test := range map[string]struct {
		away  time.Duration
		first error
	}{
		"it has not read its rules": {time.Minute, apierrors.NewForbidden(eventsResource, "e",
			errors.New(`User "eventd" cannot create resource "events" in API group "" in the namespace "ns"`))},
		"it is not ready":        {11 * time.Minute, apierrors.NewServiceUnavailable("starting")},
		"it has too much to do":  {11 * time.Minute, apierrors.NewTooManyRequestsError("later")},
		"it cannot reach etcd":   {11 * time.Minute, apierrors.NewInternalError(errors.New("etcdserver: no leader"))},
		"it knows no tokens yet": {11 * time.Minute, apierrors.NewUnauthorized("later")},
	} {
		t.Run(name, func(t *testing.T) {
			var start time.Time
			c := scripted(func(context.Context, verb) (*corev1.Event, error) {
				switch since := time.Since(start); {
				case since < test.away:
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				case since < test.away+2*time.Second:
					return nil, test.first
				default:
					return nil, nil
				}
			})
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				start = time.Now()
				b.record(0)
				b.Flush(t.Context())
				if got := b.ledger.Totals(); got.Written() != 1 {
					t.Errorf("settled as %v, dropped %v", got.Outcomes, got.Dropped)
				}
			})
		})
	}
}
