package app

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// An apiserver that does not publish the keys of ServiceAccount tokens, or never answers,
// does not keep eventd from starting, nor from stopping.
func TestStartDoesNotDependOnTheKeysOfTokens(t *testing.T) {
	for name, test := range map[string]struct {
		answers   bool
		signalled time.Duration // 0 if it is not
		took      time.Duration
	}{
		"an error":                 {answers: true},
		"no answer":                {took: issuerPatience},
		"no answer before SIGTERM": {signalled: time.Second, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.signalled > 0 {
					time.AfterFunc(test.signalled, cancel)
				}
				begun := time.Now()
				i, err := followIssuer(ctx, &rest.Config{Host: "https://apiserver", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
					if !test.answers {
						<-never
					}
					return nil, errors.New("not there")
				})})
				if err != nil || time.Since(begun) != test.took {
					t.Errorf("started after %s, %v", time.Since(begun), err)
				}
				begun = time.Now()
				i.stop()
				if took := time.Since(begun); took > 0 {
					t.Errorf("stopped after %s", took)
				}
				close(never)
			})
		})
	}
}
