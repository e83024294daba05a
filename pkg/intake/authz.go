package intake

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"
)

// withAuthorization passes on what the caller may do. What it may not is
// answered 403, but 503 if the apiserver could not be asked.
func withAuthorization(next http.Handler, authz authorizer.Authorizer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		attributes, err := filters.GetAuthorizerAttributes(req.Context())
		if err == nil {
			err = authorize(req.Context(), authz, attributes)
		} else {
			err = apierrors.NewInternalError(err)
		}
		if err != nil {
			responsewriters.RespondWithError(w, req, err, codecs)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// withoutImpersonation refuses who asks to be taken for somebody else: to act
// with the caller's own rights instead would be more than was asked for.
func withoutImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name := range req.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				attributes, err := filters.GetAuthorizerAttributes(req.Context())
				if err == nil {
					err = responsewriters.ForbiddenStatusError(attributes, "nobody may impersonate")
				}
				refuse(w, req, err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// mayCreate returns a check for updates that find nothing to update: these are
// also what one needs the right to create for.
func mayCreate(authz authorizer.Authorizer) func(ctx context.Context, namespace, name string) error {
	return func(ctx context.Context, namespace, name string) error {
		attributes, err := filters.GetAuthorizerAttributes(ctx)
		if err != nil {
			return err
		}
		return authorize(ctx, authz, authorizer.AttributesRecord{
			User:            attributes.GetUser(),
			ResourceRequest: true,
			Path:            attributes.GetPath(),
			Verb:            "create",
			APIGroup:        attributes.GetAPIGroup(),
			APIVersion:      attributes.GetAPIVersion(),
			Resource:        attributes.GetResource(),
			Namespace:       namespace,
			Name:            name,
		})
	}
}

// createOnly returns a check whether the caller may change no Events but its own: it
// may have posted one that is counted on an Event of others. A create is what patch
// is asked for; a patch or an update has been authorized, but it may be that only by
// the name that the caller has posted.
func createOnly(authz authorizer.Authorizer) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		attributes, err := filters.GetAuthorizerAttributes(ctx)
		if err != nil {
			return false, err
		}
		verb := attributes.GetVerb()
		if verb == "create" {
			verb = "patch"
		}
		err = decide(ctx, authz, authorizer.AttributesRecord{
			User:            attributes.GetUser(),
			ResourceRequest: true,
			Verb:            verb,
			APIGroup:        attributes.GetAPIGroup(),
			APIVersion:      attributes.GetAPIVersion(),
			Resource:        attributes.GetResource(),
			Namespace:       attributes.GetNamespace(),
		})
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	}
}

// authorize returns nil or the Status to answer with. Who may do something to any
// Event may do it to this one, so that is asked first: its answer is kept for all of
// a client's Events, which have a name each. Only who may not is asked for by name.
func authorize(ctx context.Context, authz authorizer.Authorizer, attributes authorizer.Attributes) error {
	if attributes.GetName() != "" {
		if err := decide(ctx, authz, ofAnyName{attributes}); !apierrors.IsForbidden(err) {
			return err
		}
	}
	return decide(ctx, authz, attributes)
}

// ofAnyName is a request for all objects, whatever their names: what an empty name
// means in a SubjectAccessReview.
type ofAnyName struct{ authorizer.Attributes }

// GetName implements authorizer.Attributes.
func (ofAnyName) GetName() string { return "" }

// GetPath implements authorizer.Attributes.
func (ofAnyName) GetPath() string { return "" }

// decide returns nil or the Status to answer with. A decision counts even if it
// comes with an error: a rule that could not be read need not matter.
func decide(ctx context.Context, authz authorizer.Authorizer, attributes authorizer.Attributes) error {
	decision, reason, err := authz.Authorize(ctx, attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case errors.Is(err, errReviews):
		return tooMany(refusedReviews)
	case err != nil && decision != authorizer.DecisionDeny:
		klog.FromContext(ctx).V(4).Info("Did not authorize the request", "reason", err)
		return unavailable("the apiserver cannot be asked what the caller may do")
	default:
		return responsewriters.ForbiddenStatusError(attributes, reason)
	}
}
