package intake

import (
	"net/http"

	"github.com/eventd/eventd/internal/shares"
)

// flow is whose requests share a limit: those of one tenant in one namespace.
// What is not known to be of a tenant is of the address that it came from.
type flow = shares.Flow

// flowOfAddress is the flow of a request whose caller is not known.
func flowOfAddress(req *http.Request) flow { return shares.FlowOfAddress(req.RemoteAddr) }
