package intake

import (
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ReplicaStatePath is where a replica accepts what others report of themselves: a POST, authenticated as a
// session.
const ReplicaStatePath = "/eventd/v1/replica"

// maxReplicaState limits the body of a report.
const maxReplicaState = 8 << 10

// withReplicaStates has reports of other replicas accepted. Like sessions, they are no business of the
// authorizer: they are authenticated as replicas.
func withReplicaStates(next http.Handler, accept func(replica string, state []byte) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := replicaName(req.Context())
		if !Forwarded(req) || name == "" || req.Method != http.MethodPost || req.URL.Path != ReplicaStatePath {
			next.ServeHTTP(w, req)
			return
		}
		state, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxReplicaState))
		if err == nil {
			err = accept(name, state)
		}
		if err != nil {
			refuse(w, req, apierrors.NewBadRequest(err.Error()))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
