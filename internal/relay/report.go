package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/intake"
)

const (
	// ReportPeriod is between two reports to the leader. A leader from which three are missing does not
	// know the state of this replica.
	ReportPeriod = 2 * time.Second
	// lastReportTimeout is for the report when this replica ends, which delays the end.
	lastReportTimeout = 250 * time.Millisecond
)

// Report sends to the leader what state returns: now, when the leader has changed, every ReportPeriod and,
// once more, when ctx ends. It returns then. A report that fails is not repeated, and nobody is told: the
// next one is sent soon.
func (r *Relay) Report(ctx context.Context, state func() []byte) {
	for ctx.Err() == nil {
		changed := r.leaderChanges.Changed()
		r.report(ctx, state(), ReportPeriod)
		_ = sleep.Until(ctx, ReportPeriod, changed)
	}
	r.report(context.WithoutCancel(ctx), state(), lastReportTimeout)
}

func (r *Relay) report(ctx context.Context, state []byte, timeout time.Duration) {
	name := r.peers.lastName()
	if r.connections() == nil || name == "" {
		return
	}
	asserted, err := r.assertSelf(name)
	if err != nil {
		return // a name can always be encoded
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _ = r.send(ctx, time.Now().Add(timeout), &outgoing{
		url: url.URL{Path: intake.ReplicaStatePath}, method: http.MethodPost, body: state,
		header: http.Header{intake.AssertedUserHeader: {asserted}, "Content-Type": {"application/json"}},
	})
}

// assertSelf returns the header that names this replica. The leader knows replicas by an asserted user: this
// one asserts itself.
func (r *Relay) assertSelf(name string) (string, error) {
	asserted, err := intake.EncodeUser(&user.DefaultInfo{
		Name: name, Extra: map[string][]string{intake.ReplicaExtra: {r.options.Identity}},
	})
	if err != nil {
		return "", fmt.Errorf("asserting this replica: %w", err)
	}
	return asserted, nil
}
