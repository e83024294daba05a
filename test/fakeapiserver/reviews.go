package fakeapiserver

import (
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is what a TokenReview knows of a token.
type Token struct {
	User   string
	Groups []string
	// Audiences, if not empty, are those that the token is valid for. Otherwise it is valid for the apiserver.
	Audiences []string
}

// apiserverAudience is that of tokens without an audience of their own.
const apiserverAudience = "https://kubernetes.default.svc"

func (s *Server) reviewToken(w http.ResponseWriter, req *http.Request) {
	review, err := decode[*authenticationv1.TokenReview](req)
	if err != nil {
		fail(w, req, err)
		return
	}
	s.counts.tokenReviews.Add(1)
	review.TypeMeta = metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"}
	review.Status = s.authenticate(review.Spec)
	respond(w, req, http.StatusCreated, review)
}

func (s *Server) authenticate(spec authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus) {
	known, ok := s.tokens[spec.Token]
	if !ok {
		return status
	}
	valid, asked := known.Audiences, spec.Audiences
	if len(valid) == 0 {
		valid = []string{apiserverAudience}
	}
	if len(asked) == 0 {
		asked = []string{apiserverAudience}
	}
	status.Audiences = slices.DeleteFunc(slices.Clone(asked), func(a string) bool { return !slices.Contains(valid, a) })
	if len(status.Audiences) == 0 {
		return authenticationv1.TokenReviewStatus{}
	}
	status.Authenticated = true
	status.User = authenticationv1.UserInfo{Username: known.User, Groups: append(slices.Clone(known.Groups), "system:authenticated")}
	return status
}

func (s *Server) reviewAccess(w http.ResponseWriter, req *http.Request) {
	review, err := decode[*authorizationv1.SubjectAccessReview](req)
	if err != nil {
		fail(w, req, err)
		return
	}
	s.counts.accessReviews.Add(1)
	review.TypeMeta = metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
	review.Status.Allowed = true
	respond(w, req, http.StatusCreated, review)
}
