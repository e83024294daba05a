package intake

import (
	"net/http"

	"github.com/eventd/eventd/internal/shares"
)

// flow identifies requests that share a limit: those of one user of a tenant in one namespace or,
// without authentication, those of one address.
type flow = shares.Flow

// flowOfAddress is the flow of a request of an unknown caller. What other replicas forward does not wait with the rest of
// their address: until its credentials were reviewed once, a new leader knows none of them.
func flowOfAddress(req *http.Request) flow {
	f := shares.FlowOfAddress(req.RemoteAddr)
	if Forwarded(req) {
		f.User = replicas
	}
	return f
}
