package app

import (
	"math"
	"testing"
)

func TestRateFlag(t *testing.T) {
	for _, test := range []struct {
		in   string
		want float64
		out  string
	}{
		{"1", 1, "1"},
		{"0.5", 0.5, "0.5"},
		{"1/300", 1. / 300, "1/300"},
		{"1/4", 0.25, "1/4"},
		{"2/3", 2. / 3, "0.6666666666666666"},
		{"unlimited", math.Inf(1), "unlimited"},
		{"0", 0, "0"}, // Validate rejects these two
		{"-3", -3, "-3"},
	} {
		rate := 7.0
		value := rateValue{&rate}
		if err := value.Set(test.in); err != nil || rate != test.want || value.String() != test.out {
			t.Errorf("%q is %v, shown as %q (%v), want %v and %q", test.in, rate, value, err, test.want, test.out)
		}
	}
	for _, in := range []string{"", "1/0", "0/0", "1/2/3", "1/s", "inf", "NaN", "1e999"} {
		rate := 7.0
		if err := (rateValue{&rate}).Set(in); err == nil || rate != 7 {
			t.Errorf("%q is %v", in, rate)
		}
	}
}

func TestBytesFlag(t *testing.T) {
	for _, test := range []struct {
		in   string
		want int64
		out  string
	}{
		{"1", 1, "1"},
		{"1Mi", 1 << 20, "1Mi"},
		{"1048576", 1 << 20, "1Mi"},
		{"2k", 2000, "2000"},
		{"0.5Ki", 512, "512"},
	} {
		bytes := int64(7)
		value := bytesValue{&bytes}
		if err := value.Set(test.in); err != nil || bytes != test.want || value.String() != test.out {
			t.Errorf("%q is %d, shown as %q (%v), want %d and %q", test.in, bytes, value, err, test.want, test.out)
		}
	}
	for _, in := range []string{"", "1MiB", "1.5", "100E"} {
		bytes := int64(7)
		if err := (bytesValue{&bytes}).Set(in); err == nil || bytes != 7 {
			t.Errorf("%q is %d", in, bytes)
		}
	}
}
