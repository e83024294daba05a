package intake

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// resolver returns the RequestInfo of a request by its method and path. It hides list
// options from request.RequestInfoFactory, which parses them before authentication: a
// selector of a megabyte costs half a second and 80 MiB, and invalid options are logged.
// Lists and watches are not served, so the options are not needed.
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
	info, err := r.factory.NewRequestInfo(req)
	if err == nil {
		// Views have them for long. They are parts of the URL, which may have 12 KiB.
		info.Namespace, info.Name = strings.Clone(info.Namespace), strings.Clone(info.Name)
	}
	return info, err
}

// watches reports whether a GET without a name is a watch, as in metav1.ListOptions.
func watches(req *http.Request) bool {
	if req.URL.RawQuery == "" {
		return false
	}
	values := req.URL.Query()["watch"]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// withValidTimeout responds 400 to an invalid timeout. WithRequestDeadline does the same,
// but logs the whole URI of each such request.
func withValidTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.RawQuery != "" {
			value := cmp.Or(req.URL.Query().Get("timeout"), "0")
			if _, err := time.ParseDuration(value); err != nil {
				refuse(w, req, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %s", err)))
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}
