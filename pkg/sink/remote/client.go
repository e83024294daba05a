package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// Client posts batches to eventd. It must be safe for concurrent use.
type Client interface {
	// Post posts an EventList in protobuf once. The error of a request that was not sent is an
	// *UnsentError, that of an answer to the whole batch an *apierrors.StatusError. With any other
	// error the batch may have been handled.
	Post(ctx context.Context, api occurrence.API, namespace string, body []byte) (*batch.Answer, error)
}

// UnsentError is of a request that was certainly not sent.
type UnsentError struct{ Err error }

// Error implements error.
func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnsentError) Unwrap() error { return e.Err }

const (
	// maxAnswerBytes limits an answer. That of eventd is limited to less.
	maxAnswerBytes = 8 << 20
	// maxErrorBytes limits the answer to a whole batch: each of its Events keeps the error.
	maxErrorBytes = 16 << 10
)

// client implements Client over HTTP.
type client struct {
	base *url.URL
	http *http.Client
	// traced: the transport is client-go's, which reports each connection that it uses. A wrapper of the caller's may
	// hide them.
	traced bool
}

// NewClientForConfig returns a Client of an eventd, with connections of its own, made from
// sink.ConfigFor(config). An error is one of the config. There is nothing to close: an idle
// connection ends after 90 seconds.
func NewClientForConfig(config *rest.Config) (Client, error) {
	traced := config.Transport == nil && config.WrapTransport == nil
	config = sink.ConfigFor(config)
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	own := *c // it may be http.DefaultClient
	// To follow a redirect would send the credentials to whatever server it names, and most make a GET
	// of the POST.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{base: base, http: &own, traced: traced}, nil
}

// Post implements Client.
func (c *client) Post(ctx context.Context, api occurrence.API, namespace string, body []byte) (*batch.Answer, error) {
	// A request that got a connection may have been sent.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	root := []string{"api", "v1"}
	if api == occurrence.EventsV1 {
		root = []string{"apis", api.GroupVersion().Group, api.GroupVersion().Version}
	}
	u := c.base.JoinPath(append(root, "namespaces", url.PathEscape(namespace), "events")...)
	u.RawQuery = batch.Query
	if deadline, ok := ctx.Deadline(); ok { // eventd answers what it cannot before
		u.RawQuery += "&timeout=" + max(time.Until(deadline)*9/10, time.Second).Round(time.Millisecond).String()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &UnsentError{err}
	}
	req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	response, err := c.http.Do(req)
	if err != nil {
		if !connected.Load() && (c.traced || apiclient.IsDial(err)) {
			err = &UnsentError{err}
		}
		return nil, err
	}
	return readAnswer(response)
}

func readAnswer(response *http.Response) (*batch.Answer, error) {
	defer func() { _ = response.Body.Close() }()
	limit := int64(maxAnswerBytes)
	if response.StatusCode != http.StatusOK {
		limit = maxErrorBytes
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, statusOf(response, body) // one that is cut is no Status
	case len(body) > maxAnswerBytes:
		return nil, errors.New("the answer to a batch is too large")
	}
	var answer batch.Answer
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the answer to a batch cannot be read: %w", err)
	}
	return &answer, nil
}

// statusOf returns the Status of an answer to a whole batch. Of a server or proxy that sends none,
// it is made from the code.
func statusOf(response *http.Response, body []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil || status.Status != metav1.StatusFailure {
		status = apierrors.NewGenericServerResponse(response.StatusCode, http.MethodPost, schema.GroupResource{Resource: "events"}, "",
			fmt.Sprintf("%.256q", body), 0, true).ErrStatus
	}
	status.Code = int32(response.StatusCode)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		status.Details.RetryAfterSeconds = int32(min(seconds, 1<<20))
	}
	return &apierrors.StatusError{ErrStatus: status}
}
