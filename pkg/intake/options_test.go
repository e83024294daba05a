package intake_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestOptionsAreChecked(t *testing.T) {
	for want, spoil := range map[string]func(*intake.Options, *intake.ServerOptions){
		"":                       func(*intake.Options, *intake.ServerOptions) {},
		"Record is required":     func(o *intake.Options, _ *intake.ServerOptions) { o.Record = nil },
		"MaxBodyBytes must be":   func(o *intake.Options, _ *intake.ServerOptions) { o.MaxBodyBytes = 0 },
		"MaxDecodeBytes must be": func(o *intake.Options, _ *intake.ServerOptions) { o.MaxDecodeBytes = 0 },
		"MaxNames must be":       func(o *intake.Options, _ *intake.ServerOptions) { o.MaxNames = -1 },
		"MaxViewBytes must be":   func(o *intake.Options, _ *intake.ServerOptions) { o.MaxViewBytes = 0 },
		"Intake is required":     func(_ *intake.Options, o *intake.ServerOptions) { o.Intake = nil },
		"Authenticator is":       func(_ *intake.Options, o *intake.ServerOptions) { o.Authenticator = nil },
		"Authorizer is required": func(_ *intake.Options, o *intake.ServerOptions) { o.Authorizer = nil },
		"MaxInFlight must not":   func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = -1 },
	} {
		valid := intake.DefaultOptions()
		valid.Record = func(*occurrence.Occurrence) {}
		i, err := intake.New(valid)
		if err != nil {
			t.Fatal(err)
		}
		options, server := valid, intake.ServerOptions{
			Intake:        i,
			Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil }),
			Authorizer:    decision(nil),
		}
		spoil(&options, &server)
		_, err = intake.New(options)
		if err == nil {
			_, err = intake.NewHandler(server)
		}
		if want == "" && err != nil || want != "" && (err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "intake: "+want)) {
			t.Errorf("%q: error %v", want, err)
		}
	}
}
