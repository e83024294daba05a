package apiclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/test/testenv"
)

// client-go's transport is found and set up whatever is around it.
func TestEveryConfigurationNoticesDeath(t *testing.T) {
	admin := testenv.Shared(t).Config()
	ca := filepath.Join(t.TempDir(), "ca")
	writeFile(t, ca, admin.CAData)
	for name, change := range map[string]func(*rest.Config){
		"client certificate": func(*rest.Config) {},
		"token": func(c *rest.Config) {
			c.TLSClientConfig.CertData, c.TLSClientConfig.KeyData, c.BearerToken = nil, nil, "t"
		},
		"CA file, which may change": func(c *rest.Config) { c.CAData, c.CAFile = nil, ca },
		"no verification":           func(c *rest.Config) { c.CAData, c.Insecure = nil, true },
		"system CAs":                func(c *rest.Config) { c.TLSClientConfig = rest.TLSClientConfig{} },
		"exec plugin": func(c *rest.Config) {
			c.CertData, c.KeyData = nil, nil
			c.ExecProvider = &api.ExecConfig{Command: "plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode}
		},
		"impersonation": func(c *rest.Config) { c.Impersonate.UserName = "somebody" },
		"proxy":         func(c *rest.Config) { c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } },
		"dial":          func(c *rest.Config) { c.Dial = (&net.Dialer{}).DialContext },
		"wrapper": func(c *rest.Config) {
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return opaque{rt} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.CopyConfig(admin)
			change(config)
			first, second := transportOf(t, config), transportOf(t, config)
			if first == second {
				t.Error("two clients share a transport")
			}
			wantHealthChecks(t, first)
		})
	}
}

// client-go takes a copy of its transport when the CA has changed.
func TestConnectionsWithANewCANoticeDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := filepath.Join(t.TempDir(), "ca")
		writeFile(t, ca, testenv.Shared(t).Config().CAData)
		config := &rest.Config{Host: "https://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAFile: ca}}
		config.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errLost }
		httpClient, err := rest.HTTPClientFor(ConfigFor(config))
		if err != nil {
			t.Fatal(err)
		}
		before, _ := unwrap[*http.Transport](httpClient.Transport)

		changed, _, err := cert.GenerateSelfSignedCertKey("new", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, ca, changed)
		time.Sleep(10 * time.Minute)
		if _, err := httpClient.Get(config.Host); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		after, _ := unwrap[*http.Transport](httpClient.Transport)
		if after == before {
			t.Fatal("the transport is still the same")
		}
		wantHealthChecks(t, after)
	})
}

func wantHealthChecks(t *testing.T, transport *http.Transport) {
	t.Helper()
	if c := transport.HTTP2; c == nil || c.SendPingTimeout != pingAfter || c.PingTimeout != pingTimeout {
		t.Errorf("the health check of connections is %+v", c)
	}
}

// opaque is a wrapper that does not show what it wraps.
type opaque struct{ rt http.RoundTripper }

func (o opaque) RoundTrip(r *http.Request) (*http.Response, error) { return o.rt.RoundTrip(r) }

// transportOf returns the transport that clients made from ConfigFor(config) use.
func transportOf(t *testing.T, config *rest.Config) *http.Transport {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(ConfigFor(config))
	if err != nil {
		t.Fatal(err)
	}
	rt := httpClient.Transport
	if o, ok := unwrap[opaque](rt); ok {
		rt = o.rt
	}
	found, ok := unwrap[*http.Transport](rt)
	if !ok {
		t.Fatalf("the transport is a %T", rt)
	}
	return found
}

func TestTransportOfTheCallerIsUsedAsItIs(t *testing.T) {
	given := &http.Transport{}
	config := &rest.Config{Host: "https://127.0.0.1", Transport: given}
	if got := transportOf(t, config); got != given || got.HTTP2 != nil || got.MaxIdleConnsPerHost != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestConfigForLeavesWhatItIsGivenAlone(t *testing.T) {
	config := &rest.Config{UserAgent: "me", QPS: 3, RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	got := ConfigFor(config)
	if config.Dial != nil || config.WrapTransport != nil || config.QPS != 3 || config.RateLimiter == nil || config.DisableCompression {
		t.Errorf("what was given is %+v now", config)
	}
	client, err := kubernetes.NewForConfig(got)
	if err != nil {
		t.Fatal(err)
	}
	if limiter := client.CoreV1().RESTClient().GetRateLimiter(); limiter != nil || got.UserAgent != "me" {
		t.Errorf("rate limiter %v, user agent %s", limiter, got.UserAgent)
	}
}
