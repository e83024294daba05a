package app

import (
	"math"
	"testing"

	"github.com/spf13/pflag"
)

// parsed is the value of a flag, and how it is shown.
type parsed[T any] struct {
	value T
	shown string
}

// wantParsed sets a flag to texts that are valid, and to others, which must not change it.
func wantParsed[T int64 | float64](t *testing.T, flag func(*T) pflag.Value, valid map[string]parsed[T], invalid ...string) {
	t.Helper()
	for text, want := range valid {
		got := T(7)
		value := flag(&got)
		if err := value.Set(text); err != nil || got != want.value || value.String() != want.shown {
			t.Errorf("%q is %v, shown as %q (%v), want %v", text, got, value, err, want)
		}
	}
	for _, text := range invalid {
		got := T(7)
		if err := flag(&got).Set(text); err == nil || got != 7 {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestRateFlag(t *testing.T) {
	wantParsed(t, func(to *float64) pflag.Value { return rateValue{to} }, map[string]parsed[float64]{
		"1":         {1, "1"},
		"0.5":       {0.5, "0.5"},
		"1/300":     {1. / 300, "1/300"},
		"1/4":       {0.25, "1/4"},
		"2/3":       {2. / 3, "0.6666666666666666"},
		"unlimited": {math.Inf(1), "unlimited"},
		"0":         {0, "0"}, // Validate rejects these two
		"-3":        {-3, "-3"},
	}, "", "1/0", "0/0", "1/2/3", "1/s", "inf", "NaN", "1e999")
}

func TestBytesFlag(t *testing.T) {
	wantParsed(t, func(to *int64) pflag.Value { return bytesValue{to} }, map[string]parsed[int64]{
		"1":       {1, "1"},
		"1Mi":     {1 << 20, "1Mi"},
		"1048576": {1 << 20, "1Mi"},
		"2k":      {2000, "2000"},
		"0.5Ki":   {512, "512"},
	}, "", "1MiB", "1.5", "100E")
}
