package intake

import (
	"net/http"

	"github.com/eventd/eventd/internal/shares"
)

// flow identifies requests that share a limit: those of one user of a tenant in one namespace or,
// without authentication, those of one address.
type flow = shares.Flow

// flowOfAddress is the flow of a request of an unknown caller.
func flowOfAddress(req *http.Request) flow { return shares.FlowOfAddress(req.RemoteAddr) }
