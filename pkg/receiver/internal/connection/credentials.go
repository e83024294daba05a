package connection

import (
	"context"
	"crypto/tls"
	"errors"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/ratelimitedlog"
	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
)

// Credentials are what a client shows to its destination, and verifies it with, from files that
// may change. They are for one goroutine at a time. Make them with NewCredentials.
type Credentials struct {
	tls     *tlsFiles // nil without TLS
	headers []*header
	current []Header
	errors  *ratelimitedlog.Limiter
}

// NewCredentials reads all files of the configuration once. Its errors name the field.
func NewCredentials(c *configv1alpha1.Connection) (*Credentials, error) {
	made := &Credentials{errors: ratelimitedlog.New(ratelimitedlog.Interval)}
	var err error
	if c.Insecure {
		if c.TLS != nil {
			return nil, errors.New("tls: must not be set with insecure")
		}
	} else if made.tls, err = newTLSFiles(c.TLS); err != nil {
		return nil, err
	}
	made.headers, err = newHeaders(c)
	made.current = make([]Header, len(made.headers))
	return made, err
}

// TLS returns the configuration of a TLS client as the files are now, or nil without TLS. It is
// another one after each change of the files, and is not to be changed.
func (c *Credentials) TLS(ctx context.Context) *tls.Config {
	if c.tls == nil {
		return nil
	}
	if err := c.tls.refresh(); err != nil {
		c.log(ctx, "tls", err)
	}
	return c.tls.config
}

// Headers returns the headers of a request as the files are now. They are valid until the next
// call.
func (c *Credentials) Headers(ctx context.Context) []Header {
	for i, h := range c.headers {
		if err := h.refresh(); err != nil {
			c.log(ctx, h.Name, err)
		}
		c.current[i] = h.Header
	}
	return c.current
}

func (c *Credentials) log(ctx context.Context, what string, err error) {
	if c.errors.Allow(what) {
		klog.FromContext(ctx).Error(err, "Could not read credentials, the last good ones are used")
	}
}
