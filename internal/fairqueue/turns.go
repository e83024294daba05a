package fairqueue

import (
	"context"
	"slices"
	"time"

	"github.com/eventd/eventd/internal/shares"
)

// Turns limit the processors that work takes, fairly between tenants: a turn is followed by a pause in proportion
// to what it took, and counts as long as both. Make them with NewTurns. They are safe for use by many goroutines, and
// need no stop.
type Turns struct {
	seats          *Seats
	tenants, users *places
	rest           int
}

// NewTurns returns turns of which count run at once, on 1/(1+rest) of so many processors, and ofTenant of one tenant: if
// that is less, others need not wait for the end of its turns. A queue holds up to queueLength.
func NewTurns(name string, count, ofTenant, rest, queueLength int) (*Turns, error) {
	seats, err := New(name, count, queueLength, nil)
	return &Turns{seats: seats, tenants: newPlaces(ofTenant, noGauge()), users: newPlaces(ofTenant, noGauge()), rest: rest}, err
}

// Run calls work when it is the turn of a flow. The pause comes after Run has returned, and does not end with ctx: whoever
// goes away would gain by it. Run returns false, and does not call work, if the queues are full or ctx ends first.
func (t *Turns) Run(ctx context.Context, f shares.Flow, work func()) bool {
	if ctx.Err() != nil {
		return false
	}
	var held []func()
	free := func() {
		for _, leave := range slices.Backward(held) {
			leave()
		}
	}
	// A user waits for itself first, so that the others of its tenant wait for a turn of it, and not for all.
	for _, of := range []struct {
		*places
		flow shares.Flow
	}{{t.users, shares.Flow{Tenant: f.Tenant, User: f.User}}, {t.tenants, shares.Flow{Tenant: f.Tenant}}} {
		leave, entered := of.enter(ctx, of.flow)
		if held = append(held, leave); !entered {
			free()
			return false
		}
	}
	release, acquired := t.seats.Acquire(ctx, f)
	if !acquired {
		free()
		return false
	}
	held = append(held, release)
	began := time.Now()
	defer func() {
		if pause := time.Duration(t.rest) * time.Since(began); pause > 0 {
			time.AfterFunc(pause, free)
		} else {
			free()
		}
	}()
	work()
	return true
}
