package intake

import (
	"errors"
	"net/http"
	"runtime/debug"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// withRecovery responds 500 after a panic. The apiserver's own filter panics again,
// which breaks the connection.
func withRecovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { // the response has begun and cannot be completed
				panic(p)
			}
			klog.FromContext(req.Context()).Error(nil, "Handling a request panicked",
				"panic", p, "method", req.Method, "stack", string(debug.Stack()))
			refuse(w, req, apierrors.NewInternalError(errors.New("handling the request panicked")))
		}()
		next.ServeHTTP(w, req)
	})
}
