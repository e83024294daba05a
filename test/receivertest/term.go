package receivertest

import (
	"context"
	"testing"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/fakelock"
)

// Term returns the context of a term of leadership, and what makes the leader lose its Lease, and
// returns then. The context has the Lease and does not end, as if no timer had fired yet. It is for
// a synctest bubble.
func Term(t *testing.T) (ctx context.Context, lose func()) {
	t.Helper()
	lock := fakelock.New(fakelock.NewStore(), "lease", "a")
	o := election.DefaultOptions()
	o.Lock, o.OnLost = lock, election.Exit
	elector, err := election.New(o)
	if err != nil {
		t.Fatal(err)
	}
	terms, ended := make(chan context.Context, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = elector.Run(t.Context(), func(term context.Context) error { // returns the loss
			terms <- term
			<-term.Done()
			return nil
		})
	}()
	return context.WithoutCancel(<-terms), func() {
		lock.Intercept(fakelock.Fail)
		<-ended
	}
}
