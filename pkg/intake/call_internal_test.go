package intake

import (
	"net/http"
	"testing"

	"github.com/eventd/eventd/internal/shares"
)

// Callers of whom no right is known share one part of their tenant, also those that are refused before they are
// authorized. Each with a part of its own, three of them left nothing for the others of their namespace.
func TestCallersAreChargedByWhatIsKnownOfThem(t *testing.T) {
	const user = "system:serviceaccount:shop:web"
	own := shares.FlowOf(user, "")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, reportPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.RemoteAddr = "192.0.2.1:1234"
	for name, test := range map[string]struct {
		authenticated bool
		standing      int32
		want, charged flow
	}{
		"not authenticated":      {false, unproven, flowOfAddress(request), flowOfAddress(request)},
		"refused before a right": {true, unproven, own.Of(shares.Unproven), own.Of(shares.Rightless)},
		"without rights":         {true, rightless, own.Of(shares.Rightless), own.Of(shares.Rightless)},
		"with a right":           {true, entitled, own, own},
	} {
		c := call{user: user}
		c.authenticated.Store(test.authenticated)
		c.standing.Store(test.standing)
		if got := c.charged(request); got != test.charged {
			t.Errorf("%s: its answer is charged to %+v, want %+v", name, got, test.charged)
		}
		if got := c.flow(request); got != test.want {
			t.Errorf("%s: charged is %+v, want %+v", name, got, test.want)
		}
	}
}
