package intake

import (
	"errors"
	"net/http"
	"runtime/debug"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// withRecovery answers a panic with 500. The apiserver's own filter panics
// again, which leaves the client with a broken connection instead of an answer.
func withRecovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { // the answer had begun: nothing else can end it
				panic(p)
			}
			klog.FromContext(req.Context()).Error(nil, "Handling a request panicked",
				"panic", p, "method", req.Method, "stack", string(debug.Stack()))
			refuse(w, req, apierrors.NewInternalError(errors.New("handling the request panicked")))
		}()
		next.ServeHTTP(w, req)
	})
}
