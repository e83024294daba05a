package intake

import (
	"net/http"
	"testing"

	"github.com/eventd/eventd/internal/shares"
)

// Answers to callers of whom no right is known share one part of their tenant, also to those that are refused before
// they are authorized. Each with a part of its own, three of them left nothing for the others of their namespace.
func TestAnswersAreChargedByWhatIsKnownOfTheirCaller(t *testing.T) {
	const user = "system:serviceaccount:shop:web"
	own := shares.FlowOf(user, "")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, reportPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.RemoteAddr = "192.0.2.1:1234"
	for name, test := range map[string]struct {
		authenticated, entitled, rightless bool
		want                               flow
	}{
		"not authenticated":      {false, false, false, flowOfAddress(request)},
		"refused before a right": {true, false, false, own.OfRightless()},
		"without rights":         {true, false, true, own.OfRightless()},
		"with a right":           {true, true, false, own},
	} {
		c := call{user: user}
		c.authenticated.Store(test.authenticated)
		c.entitled.Store(test.entitled)
		c.rightless.Store(test.rightless)
		if got := c.charged(request); got != test.want {
			t.Errorf("%s: charged is %+v, want %+v", name, got, test.want)
		}
	}
}
