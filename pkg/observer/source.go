package observer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Source reads the Events of all namespaces. Its methods are called by many goroutines. They must
// return when ctx ends: a call that does not is abandoned, and keeps one of few places.
type Source interface {
	// List returns one page of what is stored, at most limit Events: the first one if continueToken
	// is empty. It must be as new as any answer before it, so it is no read from a cache. An error
	// that is ErrPageTooLarge is answered by a smaller limit.
	List(ctx context.Context, limit int64, continueToken string) (*corev1.EventList, error)
	// Watch returns the changes after a resourceVersion. The server ends it after about timeout. ctx
	// is that of the whole watch.
	Watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error)
}

// ErrPageTooLarge is the error of a page that would take too much memory.
var ErrPageTooLarge = errors.New("the page is too large")

// maxPageBytes limits the body of a page: 250 usual Events take 0.25 MiB, and whoever may create
// Events can store ones of 1.5 MiB each.
const maxPageBytes = 7 << 18

// maxEventBytes limits a page of one Event: an apiserver takes 3 MiB, if its etcd does.
const maxEventBytes = 4 << 20

// NewSource returns a Source that reads from an apiserver, in protobuf. It needs the rights to list
// and watch events in all namespaces. A connection that is dead is noticed by the HTTP/2 health
// checks of client-go, after 45 s. config is not changed. The limits on the rate of requests in it
// do not apply: the Observer makes few, and the apiserver has limits of its own.
func NewSource(config *rest.Config) (Source, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	config.Timeout = 0 // it would end watches
	config.QPS, config.RateLimiter = -1, nil
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedPages{next} })
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for events: %w", err)
	}
	return apiserver{client.Events(metav1.NamespaceAll)}, nil
}

type apiserver struct{ events corev1client.EventInterface }

func (a apiserver) List(ctx context.Context, limit int64, continueToken string) (*corev1.EventList, error) {
	return a.events.List(ctx, metav1.ListOptions{Limit: limit, Continue: continueToken})
}

func (a apiserver) Watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error) {
	return a.events.Watch(ctx, metav1.ListOptions{
		ResourceVersion: resourceVersion,
		TimeoutSeconds:  new(int64(timeout.Seconds())),
		// etcd sends one after 10 minutes without a change. There are no others, as the apiserver
		// has no watch cache of Events.
		AllowWatchBookmarks: true,
	})
}

// limitedPages limits the bodies of responses other than watches.
type limitedPages struct{ next http.RoundTripper }

func (l limitedPages) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err == nil && !r.URL.Query().Has("watch") {
		limit := int64(maxPageBytes)
		if r.URL.Query().Get("limit") == "1" {
			limit = maxEventBytes
		}
		response.Body = &limitedBody{response.Body, limit}
	}
	return response, err
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrPageTooLarge
	}
	return n, err
}
