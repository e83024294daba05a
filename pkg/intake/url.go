package intake

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// resolver says what a request is about, by its method and its path. It hides the
// options of a list from request.RequestInfoFactory, which looks at them before it is
// known who asks: it logs all that it cannot read, and a megabyte of a selector takes
// it half a second and 80 MiB. Lists and watches are not served, so nobody needs them.
type resolver struct{ factory *request.RequestInfoFactory }

func newResolver() resolver {
	return resolver{&request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}}
}

// NewRequestInfo implements request.RequestInfoResolver.
func (r resolver) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	url := *req.URL
	url.RawQuery = ""
	if watches(req) {
		url.RawQuery = "watch=true"
	}
	req = req.WithContext(req.Context())
	req.URL = &url
	return r.factory.NewRequestInfo(req)
}

// watches tells whether a GET without a name is a watch, by the rules of
// metav1.ListOptions.
func watches(req *http.Request) bool {
	if req.URL.RawQuery == "" {
		return false
	}
	values := req.URL.Query()["watch"]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// withValidTimeout answers 400 to a time-out that cannot be read, as
// WithRequestDeadline does, which logs the whole URI of each such request.
func withValidTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if value := req.URL.Query().Get("timeout"); value != "" {
			if _, err := time.ParseDuration(value); err != nil {
				refuse(w, req, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %s", err)))
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}
