package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// Where a kube-apiserver publishes the issuer of ServiceAccount tokens and its keys
	// (kubernetes, pkg/serviceaccount/openidmetadata.go). Every ServiceAccount may read
	// both: the ClusterRoleBinding system:service-account-issuer-discovery.
	openIDConfigPath = "/.well-known/openid-configuration"
	keySetPath       = "/openid/v1/jwks"

	// maxIssuerBytes limits each response; a key has about 400 bytes.
	maxIssuerBytes = 256 << 10
	// issuerTimeout is for reading both.
	issuerTimeout = 10 * time.Second
	// issuerRefresh is the maximum age of the keys. They are read earlier, but not within
	// issuerPause, if a token names an unknown key. After a failure they are read again
	// after issuerPause, which doubles with each failure.
	issuerRefresh = 10 * time.Minute
	issuerPause   = 10 * time.Second
)

// Issuer verifies ServiceAccount tokens with the public keys of the cluster that issued
// them. Verification is no authentication: a token may be revoked, or be for another
// audience. It decides in which share a request waits for the TokenReview of a token that
// this process has not reviewed yet. So a new leader distinguishes the clients of its
// predecessor from callers with bogus tokens.
//
// Run reads the keys; without them no token verifies. The last keys that could be read
// stay in use. It is safe for use by many goroutines.
type Issuer struct {
	client *http.Client
	base   *url.URL

	keys    atomic.Pointer[issuerKeys] // nil before they could be read
	wanted  chan struct{}              // has one while a token names an unknown key
	tried   chan struct{}              // closed when the keys were read once, or could not be
	reading sync.Mutex                 // held while requests are under way
}

// NewIssuer returns the issuer of the cluster that a configuration leads to. It is not
// contacted before Run.
func NewIssuer(config *rest.Config) (*Issuer, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	own := *client // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Issuer{client: &own, base: base, wanted: make(chan struct{}, 1), tried: make(chan struct{})}, nil
}

// Tried is closed when the keys were read for the first time, or could not be.
func (i *Issuer) Tried() <-chan struct{} { return i.tried }

// subject returns the user name of the ServiceAccount that a token was issued to, and is
// false if it does not verify. It waits for nothing. A nil issuer verifies no token.
func (i *Issuer) subject(token string) (string, bool) {
	if i == nil {
		return "", false
	}
	keys := i.keys.Load()
	if keys == nil {
		return "", false
	}
	subject, err := keys.subject(token, time.Now())
	if errors.Is(err, errUnknownKey) {
		select {
		case i.wanted <- struct{}{}:
		default:
		}
	}
	return subject, err == nil
}

// Run reads the keys, and again as they change, until ctx is over. It is run once. A
// transport that ignores its context does not hold it up.
func (i *Issuer) Run(ctx context.Context) {
	err := i.read(ctx)
	close(i.tried)
	pause := issuerPause
	for ctx.Err() == nil {
		if err == nil {
			pause = issuerPause
			sleep(ctx, issuerPause, nil)
			sleep(ctx, issuerRefresh-issuerPause, i.wanted)
		} else {
			if pause == issuerPause { // the first failure
				klog.FromContext(ctx).Info("Cannot read the public keys of ServiceAccount tokens: the last ones stay in use; without any, unknown callers share limits by address", "reason", err.Error())
			}
			sleep(ctx, pause, nil)
			pause = min(2*pause, issuerRefresh)
		}
		err = i.read(ctx)
	}
}

// sleep waits for a time, until it is woken, or ctx is over.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// read replaces the keys. A request that ignores its context is abandoned; no other one
// begins before it returns.
func (i *Issuer) read(ctx context.Context) error {
	if !i.reading.TryLock() {
		return errors.New("the request before has not returned")
	}
	select {
	case <-i.wanted: // by a token that came before
	default:
	}
	ctx, cancel := context.WithTimeoutCause(ctx, issuerTimeout, fmt.Errorf("no answer within %s", issuerTimeout))
	defer cancel() // not in the goroutine: its result and the end of ctx would be ready at once
	result := make(chan error, 1)
	go func() {
		defer i.reading.Unlock()
		keys, err := i.fetch(ctx)
		if err == nil && ctx.Err() == nil {
			i.keys.Store(keys)
		}
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (i *Issuer) fetch(ctx context.Context) (*issuerKeys, error) {
	data, err := i.get(ctx, openIDConfigPath)
	if err != nil {
		return nil, err
	}
	var config struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", openIDConfigPath, err)
	}
	if data, err = i.get(ctx, keySetPath); err != nil {
		return nil, err
	}
	keys, err := parseIssuerKeys(config.Issuer, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keySetPath, err)
	}
	return keys, nil
}

func (i *Issuer) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := i.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxIssuerBytes+1))
	if err == nil && len(data) > maxIssuerBytes {
		err = fmt.Errorf("%s: more than %d bytes", path, maxIssuerBytes)
	}
	return data, err
}
