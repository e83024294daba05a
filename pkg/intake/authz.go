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

// Authorizer decides whether a caller may do something. Each authorizer.Authorizer is one.
type Authorizer interface {
	Authorize(context.Context, authorizer.Attributes) (decision authorizer.Decision, reason string, err error)
}

// withAuthorization authorizes requests, except queries. It responds 403 to forbidden ones, 503 if the
// review of the apiserver failed, and 429 if there are too many reviews.
func withAuthorization(next http.Handler, authz Authorizer, control *flowControl) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		authz := authz
		switch q := control.queries; {
		case q.resource(req) != "": // Queries says what rights it needs
			next.ServeHTTP(w, req)
			return
		case q.covers(req):
			authz = q.authz
			callOf(req.Context()).query.Store(true)
		}
		attributes, err := filters.GetAuthorizerAttributes(req.Context())
		if err == nil {
			err = control.decided(req, authorize(req.Context(), authz, attributes))
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

// withoutImpersonation refuses impersonation. To ignore the header would use the rights
// of the caller, which may be more than those of the impersonated user.
func withoutImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name := range req.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				attributes, err := filters.GetAuthorizerAttributes(req.Context())
				if err == nil {
					err = responsewriters.ForbiddenStatusError(attributes, "impersonation is not supported")
				}
				refuse(w, req, err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// mayCreate returns a check for updates of Events that do not exist: the caller needs
// the right to create as well.
func mayCreate(authz Authorizer) func(ctx context.Context, namespace, name string) error {
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

// createOnly returns a check whether the caller may not change Events of others, since
// its Event may be counted on one of them. For a create it checks the right to patch.
// A patch or an update is authorized already, but maybe only for the name that the
// caller has posted.
func createOnly(authz Authorizer) func(context.Context) (bool, error) {
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
		if err != nil && apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	}
}

// authorize returns nil or the Status of the response. It first checks the right to all
// names, because that decision is cached once for all Events of a client. It checks the
// right to the name only if that is denied.
func authorize(ctx context.Context, authz Authorizer, attributes authorizer.Attributes) error {
	if attributes.GetName() != "" {
		if err := decide(ctx, authz, allNames{attributes}); err == nil || !apierrors.IsForbidden(err) {
			return err
		}
	}
	return decide(ctx, authz, attributes)
}

// allNames are attributes for objects of any name: an empty name in a
// SubjectAccessReview.
type allNames struct{ authorizer.Attributes }

// GetName implements authorizer.Attributes.
func (allNames) GetName() string { return "" }

// GetPath implements authorizer.Attributes.
func (allNames) GetPath() string { return "" }

// decide returns nil or the Status of the response. A decision holds even with an error,
// which may be about an unrelated rule.
func decide(ctx context.Context, authz Authorizer, attributes authorizer.Attributes) error {
	decision, reason, err := authz.Authorize(ctx, attributes)
	return statusOfDecision(ctx, attributes, decision, reason, err)
}

func statusOfDecision(ctx context.Context, attributes authorizer.Attributes, decision authorizer.Decision, reason string, err error) error {
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case errors.Is(err, errReviews):
		return tooMany(refusedReviews)
	case errors.Is(err, errDoubtful):
		return unavailable(errDoubtful.Error() + ": that is reviewed again")
	case err != nil && decision != authorizer.DecisionDeny:
		klog.FromContext(ctx).V(4).Info("Did not authorize the request", "reason", err)
		return unavailable("the apiserver cannot be reached to authorize the request")
	default:
		return responsewriters.ForbiddenStatusError(attributes, reason)
	}
}
