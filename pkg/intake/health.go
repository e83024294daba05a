package intake

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
)

// withHealth serves probes before any filter that could refuse them.
func withHealth(next http.Handler, options *ServerOptions) http.Handler {
	probes := mux.NewPathRecorderMux("eventd")
	healthz.InstallHandler(probes, options.Livez...)
	healthz.InstallLivezHandler(probes, options.Livez...)
	healthz.InstallReadyzHandler(probes, options.Readyz...)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			if req.URL.Path != path && !strings.HasPrefix(req.URL.Path, path+"/") {
				continue
			}
			probes.ServeHTTP(w, req)
			if req.URL.Path == path && options.Role != nil && req.URL.Query().Has("verbose") {
				_, _ = fmt.Fprintf(w, "role: %s\n", options.Role())
			}
			return
		}
		next.ServeHTTP(w, req)
	})
}
