package sink

import (
	"math"
	"testing"

	"github.com/eventd/eventd/pkg/ledger"
)

// Each row spoils one field of valid options; the error is about that field alone.
func TestOptionsAreValidated(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"Concurrency must be greater than 0, got 0":                      func(o *Options) { o.Concurrency = 0 },
		"Concurrency must be at most 10000, got 10001":                   func(o *Options) { o.Concurrency = MaxConcurrency + 1 },
		"MinConcurrency must be greater than 0, got 0":                   func(o *Options) { o.MinConcurrency = 0 },
		"SlowAnswer must be greater than 0, got 0s":                      func(o *Options) { o.SlowAnswer = 0 },
		"NamespaceRefusedFor must not be negative, got -1ns":             func(o *Options) { o.NamespaceRefusedFor = -1 },
		"QPS must be greater than 0, got 0":                              func(o *Options) { o.QPS = 0 },
		"QPS must be greater than 0, got NaN":                            func(o *Options) { o.QPS = math.NaN() },
		"Burst must be greater than 0, got -1":                           func(o *Options) { o.Burst = -1 },
		"RequestTimeout must be greater than 0, got 0s":                  func(o *Options) { o.RequestTimeout = 0 },
		"RetryBaseDelay must be greater than 0, got 0s":                  func(o *Options) { o.RetryBaseDelay = 0 },
		"RetryMaxDelay must be at least RetryBaseDelay (50ms), got 49ms": func(o *Options) { o.RetryMaxDelay = 49e6 },
		"RetryFor must be greater than 0, got 0s":                        func(o *Options) { o.RetryFor = 0 },
		"ForbiddenFor must not be negative, got -1ns":                    func(o *Options) { o.ForbiddenFor = -1 },
		"MaxPendingSeries must be greater than 0, got 0":                 func(o *Options) { o.MaxPendingSeries = 0 },
		"MaxPendingBytes must be greater than 0, got 0":                  func(o *Options) { o.MaxPendingBytes = 0 },
		"MaxIdleSeries must be greater than 0, got 0":                    func(o *Options) { o.MaxIdleSeries = 0 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if _, err := New(t.Context(), nil, ledger.New(), o); err == nil || err.Error() != "sink options: "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	extreme := DefaultOptions()
	extreme.Concurrency, extreme.NamespaceRefusedFor, extreme.ForbiddenFor = MaxConcurrency, 0, 0
	for name, o := range map[string]Options{"defaults": DefaultOptions(), "extremes": extreme} {
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
