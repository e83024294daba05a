package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// passing is a request that this replica does not serve itself, as it is passed
// on. Its body is kept, so that it can be sent more than once.
type passing struct {
	url    url.URL // without scheme and host
	method string
	header http.Header
	body   []byte
	kind   schema.GroupVersionKind // of a body that does not say it
	// decoding is what it costs to read the body, nil if nobody has said so.
	decoding *decoding
}

// newPassing asserts whom a request was authenticated as.
func newPassing(req *http.Request, body []byte) (*passing, error) {
	caller, ok := request.UserFrom(req.Context())
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("no user in the context"))
	}
	asserted, err := encodeUser(caller)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	p := &passing{url: *req.URL, method: req.Method, header: endToEnd(req.Header), body: body, decoding: callOf(req.Context()).decoding}
	p.header.Set(assertedUser, asserted)
	if len(p.header["User-Agent"]) == 0 {
		p.header.Set("User-Agent", "") // or the transport puts its own in
	}
	if info, ok := request.RequestInfoFrom(req.Context()); ok {
		p.kind = schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: "Event"}
	}
	if id, ok := audit.AuditIDFrom(req.Context()); ok {
		p.header.Set("Audit-Id", string(id)) // the same in both replicas' logs
	}
	return p, nil
}

// readBody reads a whole body; one above the limit is answered as by the
// apiserver's handlers.
func readBody(req *http.Request, limit int64) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return body, nil
}

// unnamed tells whether a request is for an Event whose name is made up where it
// is recorded. The body is read as by the leader's handlers, to which it need not
// say what it is.
func (p *passing) unnamed() bool {
	if p.method != http.MethodPost {
		return false
	}
	if p.decoding != nil {
		release, err := p.decoding.budget.reserve(context.Background(), p.decoding.cost)
		if err != nil {
			return true // it may be: the answer for one is right for all, if of less use
		}
		defer release()
	}
	// By its type, not by how it begins: a body in YAML may look like one in JSON.
	format, err := negotiation.NegotiateInputSerializerForMediaType(p.header.Get("Content-Type"), false, codecs)
	if err != nil {
		return false // nor does the leader read it
	}
	obj, _, err := format.Serializer.Decode(p.body, &p.kind, nil)
	if err != nil {
		return false
	}
	event, err := meta.Accessor(obj)
	return err == nil && event.GetName() == ""
}

// to returns the request to a leader. It has the time that is left until the
// deadline of ctx, by the parameter that the leader takes it from.
func (p *passing) to(ctx context.Context, leader, token string) (*http.Request, error) {
	u := p.url
	u.Scheme, u.Host = "https", leader
	if deadline, ok := ctx.Deadline(); ok {
		query := u.Query()
		query.Set("timeout", time.Until(deadline).String())
		u.RawQuery = query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, p.method, u.String(), bytes.NewReader(p.body))
	if err != nil {
		return nil, err
	}
	req.Header = p.header.Clone()
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}

// withBody returns a request with its body, which was read, still to be read.
func withBody(req *http.Request, body []byte) *http.Request {
	req = req.WithContext(req.Context())
	req.Body = receivedBody{bytes.NewReader(body), body}
	return req
}

// receivedBody is one that was read, and can be had without reading it.
type receivedBody struct {
	*bytes.Reader
	all []byte
}

// Close implements io.Closer.
func (receivedBody) Close() error { return nil }

// wholeBody returns the body of a request that comes from withBody.
func wholeBody(req *http.Request) []byte {
	body, _ := req.Body.(receivedBody)
	return body.all
}

// passed is the leader's answer. Its body is about as large as the request's.
type passed struct {
	code   int
	header http.Header
	body   []byte
}

// readAnswer reads all of the leader's answer before any of it goes on, so that
// a client never gets a part of one.
func readAnswer(response *http.Response) (*passed, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &passed{response.StatusCode, response.Header, body}, nil
}

// withoutEffect tells whether the one that was asked does not accept.
func (a *passed) withoutEffect() bool {
	return a.code == http.StatusServiceUnavailable && a.header.Get(notLeading) != ""
}

func (a *passed) write(w http.ResponseWriter) {
	header := w.Header()
	for name, values := range endToEnd(a.header) {
		header[name] = values
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// hopByHop are the headers that concern one connection: those of RFC 9110 7.6.1,
// and what proxies and clients have used.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns a copy of the headers that go on: not those of a connection,
// nor those that are between replicas.
func endToEnd(header http.Header) http.Header {
	out := header.Clone()
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	for name := range out {
		if strings.HasPrefix(name, peerHeaders) {
			delete(out, name)
		}
	}
	return out
}
