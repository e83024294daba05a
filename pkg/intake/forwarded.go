package intake

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// AssertedUserHeader is in requests that another replica forwards, and marks them. Its
// value is EncodeUser of the caller whom that replica authenticated.
const AssertedUserHeader = "Eventd-Asserted-User"

// Forwarded reports whether a request comes from another replica. Behind the
// authentication that is certain.
func Forwarded(req *http.Request) bool { return len(req.Header[AssertedUserHeader]) > 0 }

// errAssertion is that a replica does not say whom it has authenticated. The token of
// the replica may be good all the same.
var errAssertion = errors.New("malformed assertion of a user")

// OwnTokenError is that the apiserver does not accept the token of this replica. Then it
// cannot recognize other replicas, whatever they present.
type OwnTokenError struct{ Err error }

// Error implements error.
func (e OwnTokenError) Error() string {
	return "this replica's own token is not valid: " + e.Err.Error()
}

// Unwrap returns why the token is not accepted.
func (e OwnTokenError) Unwrap() error { return e.Err }

// orPeer returns an authenticator that takes the caller from what a replica asserts,
// and has another authenticator decide about all other requests.
func orPeer(forwarder Forwarder, other authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if !Forwarded(req) {
			return other.AuthenticateRequest(req)
		}
		return authenticatePeer(req.Context(), forwarder, bearerToken(req), req.Header[AssertedUserHeader])
	})
}

func authenticatePeer(ctx context.Context, forwarder Forwarder, token string, asserted []string) (*authenticator.Response, bool, error) {
	if token == "" {
		return nil, false, nil
	}
	if ok, err := forwarder.IsPeer(ctx, token); err != nil || !ok {
		return nil, false, err
	}
	caller, err := decodeUser(asserted) // of a replica only: it may be large
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errAssertion, err)
	}
	return &authenticator.Response{User: caller}, true, nil
}

// EncodeUser returns base64 of a JSON UserInfo of authentication.k8s.io/v1: names,
// groups and extra keys may have any characters in them.
func EncodeUser(u user.Info) (string, error) {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue)
		}
		info.Extra[key] = values
	}
	data, err := json.Marshal(info)
	return base64.StdEncoding.EncodeToString(data), err
}

// decodeUser reads what EncodeUser has written. There must be one value, and a name in
// it.
func decodeUser(values []string) (user.Info, error) {
	if len(values) != 1 {
		return nil, fmt.Errorf("asserted %d times", len(values))
	}
	data, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return nil, err
	}
	var info authenticationv1.UserInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, err
	}
	if info.Username == "" {
		return nil, errors.New("nobody is asserted")
	}
	asserted := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups}
	for key, values := range info.Extra {
		if asserted.Extra == nil {
			asserted.Extra = make(map[string][]string)
		}
		asserted.Extra[key] = values
	}
	return asserted, nil
}

func bearerToken(req *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
