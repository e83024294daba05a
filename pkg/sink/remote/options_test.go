package remote

import (
	"strings"
	"testing"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/ledger"
)

func TestEachInvalidOptionIsNamed(t *testing.T) {
	for field, spoil := range map[string]func(*Options){
		"Delay":           func(o *Options) { o.Delay = -1 },
		"MaxItems":        func(o *Options) { o.MaxItems = 0 },
		"MaxItems must":   func(o *Options) { o.MaxItems = batch.MaxItems + 1 },
		"MaxBytes":        func(o *Options) { o.MaxBytes = 0 },
		"Concurrency":     func(o *Options) { o.Concurrency = 0 },
		"RequestTimeout":  func(o *Options) { o.RequestTimeout = 0 },
		"RetryBaseDelay":  func(o *Options) { o.RetryBaseDelay = 0 },
		"RetryMaxDelay":   func(o *Options) { o.RetryMaxDelay = o.RetryBaseDelay - 1 },
		"RetryFor":        func(o *Options) { o.RetryFor = 0 },
		"ForbiddenFor":    func(o *Options) { o.ForbiddenFor = -1 },
		"MaxPendingItems": func(o *Options) { o.MaxPendingItems = 0 },
		"MaxPendingBytes": func(o *Options) { o.MaxPendingBytes = 0 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if _, err := New(t.Context(), newFakeEventd(), ledger.New(), o); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	o := DefaultOptions()
	o.Delay, o.MaxItems, o.MaxBytes, o.Concurrency, o.ForbiddenFor, o.MaxPendingItems, o.MaxPendingBytes = 0, batch.MaxItems, 1, 1, 0, 1, 1
	o.RetryMaxDelay = o.RetryBaseDelay
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

// What DefaultOptions states.
func TestDefaultLimits(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil || o.MaxPendingBytes != 8<<20 || o.MaxBytes != 1<<20 {
		t.Errorf("%+v: %v", o, err)
	}
}
