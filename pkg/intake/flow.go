package intake

import (
	"net/http"

	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/occurrence"
)

// flow identifies requests that share a limit: those of one user of a tenant in one namespace or,
// without authentication, those of one address.
type flow = shares.Flow

// flowOf is the flow of a user in a namespace, or with "" in all of them.
func flowOf(user, namespace string) flow {
	f := flow{Tenant: occurrence.TenantOf(user), Namespace: namespace}
	if f.Tenant != user {
		f.User = user
	}
	return f
}

// flowOfAddress is the flow of a request of an unknown caller.
func flowOfAddress(req *http.Request) flow { return shares.FlowOfAddress(req.RemoteAddr) }
