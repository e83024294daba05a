package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/occurrence"
)

func TestClasses(t *testing.T) {
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "patch", eventsResource, "e", "", 0, true)
	}
	namespaces := schema.GroupResource{Resource: "namespaces"}
	terminating := apierrors.NewForbidden(eventsResource, "e", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	transport := func(err error) error { return &url.Error{Op: "Patch", URL: "https://x", Err: err} }
	for name, test := range map[string]struct {
		err    error
		verb   verb
		class  class
		reason occurrence.Reason
	}{
		"success":                    {nil, verbPatch, classOK, ""},
		"exists":                     {apierrors.NewAlreadyExists(eventsResource, "e"), verbCreate, classExists, ""},
		"conflict":                   {apierrors.NewConflict(eventsResource, "e", nil), verbPatch, classExists, ""},
		"expired":                    {apierrors.NewNotFound(eventsResource, "e"), verbPatch, classNotFound, ""},
		"expired before it was read": {apierrors.NewNotFound(eventsResource, "e"), verbRead, classNotFound, ""},
		"no namespace":               {apierrors.NewNotFound(namespaces, "ns"), verbCreate, classRefused, occurrence.NamespaceNotFound},
		"no namespace to patch in":   {apierrors.NewNotFound(namespaces, "ns"), verbPatch, classRefused, occurrence.NamespaceNotFound},
		"no such API":                {apierrors.NewNotFound(eventsResource, "e"), verbCreate, classRefused, occurrence.Refused},
		"namespace terminating":      {terminating, verbCreate, classRefused, occurrence.NamespaceTerminating},
		"400":                        {status(400), verbCreate, classRefused, occurrence.Invalid},
		"401":                        {status(401), verbCreate, classNotTaken, ""},
		"403":                        {status(403), verbCreate, classRefused, occurrence.Forbidden},
		"403 since it is not ready":  {apierrors.NewForbidden(eventsResource, "e", errors.New("not yet ready to handle request")), verbCreate, classNotTaken, ""},
		"405":                        {status(405), verbCreate, classRefused, occurrence.Refused},
		"408":                        {status(408), verbCreate, classLost, ""},
		"413":                        {status(413), verbCreate, classRefused, occurrence.Invalid},
		"415":                        {status(415), verbCreate, classRefused, occurrence.Refused},
		"422":                        {status(422), verbCreate, classRefused, occurrence.Invalid},
		"429":                        {status(429), verbCreate, classNotTaken, ""},
		"500":                        {status(500), verbPatch, classLost, ""},
		"502":                        {status(502), verbPatch, classLost, ""},
		"503":                        {status(503), verbPatch, classLost, ""},
		"504":                        {status(504), verbPatch, classLost, ""},
		"too large for etcd":         {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), verbCreate, classRefused, occurrence.Invalid},
		"wrapped":                    {fmt.Errorf("writing: %w", status(429)), verbCreate, classNotTaken, ""},
		"not connected":              {transport(&net.OpError{Op: "dial", Err: errors.New("refused")}), verbCreate, classUnreachable, ""},
		"connection broken":          {transport(&net.OpError{Op: "read", Err: errors.New("reset")}), verbCreate, classLost, ""},
		"not sent":                   {&unsent{errLost, classUnreachable}, verbCreate, classUnreachable, ""},
		"not sent, others are":       {&unsent{errLost, classNotTaken}, verbCreate, classNotTaken, ""},
		"not to be sent":             {&unsent{errLost, classRefused}, verbCreate, classRefused, occurrence.Invalid},
		"sent, and not connected":    {&sent{transport(&net.OpError{Op: "dial", Err: errors.New("refused")})}, verbCreate, classLost, ""},
		"sent, and refused":          {&sent{status(422)}, verbCreate, classRefused, occurrence.Invalid},
		"out of time":                {transport(context.DeadlineExceeded), verbCreate, classLost, ""},
	} {
		if got := classify(test.verb, &corev1.Event{}, test.err); got.class != test.class || got.reason != test.reason {
			t.Errorf("%s: %s %q, want %s %q", name, got.class, got.reason, test.class, test.reason)
		}
	}
	if got := classify(verbPatch, nil, apierrors.NewTooManyRequests("", 7)); got.after != 7*time.Second || got.code != http.StatusTooManyRequests {
		t.Errorf("a suggested delay is read as %+v", got)
	}
	if got := classify(verbCreate, nil, apierrors.NewForbidden(eventsResource, "e", errors.New("a webhook says so"))); got.mayChange {
		t.Error("what an admission plugin forbids is taken for RBAC")
	}
}
