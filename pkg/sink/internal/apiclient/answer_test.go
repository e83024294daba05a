package apiclient

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
		verb   Verb
		class  Class
		reason occurrence.Reason
	}{
		"success":                    {nil, VerbPatch, ClassOK, ""},
		"exists":                     {apierrors.NewAlreadyExists(eventsResource, "e"), VerbCreate, ClassExists, ""},
		"conflict":                   {apierrors.NewConflict(eventsResource, "e", nil), VerbPatch, ClassExists, ""},
		"expired":                    {apierrors.NewNotFound(eventsResource, "e"), VerbPatch, ClassNotFound, ""},
		"expired before it was read": {apierrors.NewNotFound(eventsResource, "e"), VerbRead, ClassNotFound, ""},
		"no namespace":               {apierrors.NewNotFound(namespaces, "ns"), VerbCreate, ClassRefused, occurrence.NamespaceNotFound},
		"no namespace to patch in":   {apierrors.NewNotFound(namespaces, "ns"), VerbPatch, ClassRefused, occurrence.NamespaceNotFound},
		"no such API":                {apierrors.NewNotFound(eventsResource, "e"), VerbCreate, ClassRefused, occurrence.Refused},
		"namespace terminating":      {terminating, VerbCreate, ClassRefused, occurrence.NamespaceTerminating},
		"400":                        {status(400), VerbCreate, ClassRefused, occurrence.Invalid},
		"401":                        {status(401), VerbCreate, ClassRetry, ""},
		"403":                        {status(403), VerbCreate, ClassRefused, occurrence.Forbidden},
		"403 since it is not ready":  {apierrors.NewForbidden(eventsResource, "e", errors.New("not yet ready to handle request")), VerbCreate, ClassRetry, ""},
		"405":                        {status(405), VerbCreate, ClassRefused, occurrence.Refused},
		"408":                        {status(408), VerbCreate, ClassLost, ""},
		"413":                        {status(413), VerbCreate, ClassRefused, occurrence.Invalid},
		"415":                        {status(415), VerbCreate, ClassRefused, occurrence.Refused},
		"422":                        {status(422), VerbCreate, ClassRefused, occurrence.Invalid},
		"429":                        {status(429), VerbCreate, ClassRetry, ""},
		"500":                        {status(500), VerbPatch, ClassLost, ""},
		"502":                        {status(502), VerbPatch, ClassLost, ""},
		"503":                        {status(503), VerbPatch, ClassLost, ""},
		"504":                        {status(504), VerbPatch, ClassLost, ""},
		"too large for etcd":         {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), VerbCreate, ClassRefused, occurrence.Invalid},
		"wrapped":                    {fmt.Errorf("writing: %w", status(429)), VerbCreate, ClassRetry, ""},
		"not connected":              {transport(errRefused), VerbCreate, ClassUnreachable, ""},
		"connection broken":          {transport(&net.OpError{Op: "read", Err: errors.New("reset")}), VerbCreate, ClassLost, ""},
		"not sent":                   {&UnsentError{errLost, ClassUnreachable}, VerbCreate, ClassUnreachable, ""},
		"not sent, others are":       {&UnsentError{errLost, ClassRetry}, VerbCreate, ClassRetry, ""},
		"not to be sent":             {&UnsentError{errLost, ClassRefused}, VerbCreate, ClassRefused, occurrence.Invalid},
		"sent, and not connected":    {&sentError{transport(errRefused)}, VerbCreate, ClassLost, ""},
		"sent, and refused":          {&sentError{status(422)}, VerbCreate, ClassRefused, occurrence.Invalid},
		"out of time":                {transport(context.DeadlineExceeded), VerbCreate, ClassLost, ""},
	} {
		if got := Classify(test.verb, &corev1.Event{}, test.err); got.Class != test.class || got.Reason != test.reason {
			t.Errorf("%s: %s %q, want %s %q", name, got.Class, got.Reason, test.class, test.reason)
		}
	}
	if got := Classify(VerbPatch, nil, apierrors.NewTooManyRequests("", 7)); got.RetryAfter != 7*time.Second || got.Code != http.StatusTooManyRequests {
		t.Errorf("a suggested delay is read as %+v", got)
	}
	if got := Classify(VerbCreate, nil, apierrors.NewForbidden(eventsResource, "e", errors.New("denied by a webhook"))); got.Denied {
		t.Error("a denial by an admission plugin counts as one by RBAC")
	}
}
