package intake_test

import (
	"testing"

	"github.com/eventd/eventd/internal/identity"
)

func TestOccurrenceNamesTheAuthenticatedUserWhateverSourceItClaims(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.post(t, classic("web-0.1", 1)).want(t, 201, "")
	s.patch(t, "web-0.1", `{"count":2}`).want(t, 200, "")
	occurrences := p.occurrences()
	for i, o := range occurrences {
		if o.User != "tester" {
			t.Errorf("occurrence %d is of the user %q, not of the one who was authenticated", i, o.User)
		}
	}
	if len(occurrences) != 2 {
		t.Fatalf("%d occurrences, not 2", len(occurrences))
	}
	// The user limits what is taken, and makes no other series.
	other := *occurrences[0]
	other.User = "another"
	if other.Series() != identity.Of(occurrences[0].Event) {
		t.Error("the user is part of the identity")
	}
}
