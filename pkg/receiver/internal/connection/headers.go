package connection

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
)

const authorization = "Authorization"

// reserved are the headers that the protocols set themselves.
var reserved = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
	"Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
}

// Header is sent with a request. Its value can be sent as it is.
type Header struct{ Name, Value string }

// header is a Header whose value may be in a file. It is for one goroutine.
type header struct {
	Header
	prefix string
	file   *file // nil if the value is constant
}

func newHeaders(c *configv1alpha1.Connection) ([]*header, error) {
	var headers []*header
	for i, h := range c.Headers {
		made, err := newHeader(h)
		if err != nil {
			return nil, fmt.Errorf("headers[%d]: %w", i, err)
		}
		headers = append(headers, made)
	}
	if c.BearerTokenFile != "" {
		token := &header{Header: Header{Name: authorization}, prefix: "Bearer ", file: &file{path: c.BearerTokenFile}}
		if err := token.refresh(); err != nil {
			return nil, fmt.Errorf("bearerTokenFile: %w", err)
		}
		headers = append(headers, token)
	}
	for i, h := range headers {
		if slices.ContainsFunc(headers[:i], func(other *header) bool { return other.Name == h.Name }) {
			return nil, fmt.Errorf("header %s is set twice", h.Name)
		}
	}
	return headers, nil
}

func newHeader(h configv1alpha1.Header) (*header, error) {
	name := http.CanonicalHeaderKey(h.Name)
	if !httpguts.ValidHeaderFieldName(name) {
		return nil, fmt.Errorf("name %q is not that of a header", h.Name)
	}
	if slices.Contains(reserved, name) || strings.HasPrefix(name, "Grpc-") {
		return nil, fmt.Errorf("name %q: the protocol sets this header", h.Name)
	}
	if (h.Value == "") == (h.File == "") {
		return nil, errors.New("one of value and file must be set")
	}
	if h.File != "" {
		made := &header{Header: Header{Name: name}, file: &file{path: h.File}}
		return made, made.refresh()
	}
	value, err := headerValue(h.Value)
	return &header{Header: Header{Name: name, Value: value}}, err
}

// refresh reads the value again if the file has changed. After an error the last one stays.
func (h *header) refresh() error {
	if h.file == nil {
		return nil
	}
	changed, err := h.file.refresh()
	if err != nil || !changed {
		return err
	}
	value, err := headerValue(string(h.file.content))
	if err != nil {
		return fmt.Errorf("%s: %w", h.file.path, err)
	}
	h.Value = h.prefix + value
	return nil
}

// headerValue returns what both HTTP and gRPC send as it is: printable ASCII. Errors do not
// contain the value, which may be a secret.
func headerValue(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", errors.New("the value is empty")
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return "", errors.New("the value is not printable ASCII")
		}
	}
	return s, nil
}
