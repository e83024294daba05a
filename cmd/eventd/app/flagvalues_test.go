package app

import (
	"math"
	"testing"
)

func TestRateFlag(t *testing.T) {
	for _, test := range []struct {
		in   string
		want float64 // NaN: refused
		out  string
	}{
		{"1", 1, "1"},
		{"0.5", 0.5, "0.5"},
		{"1/300", 1. / 300, "1/300"},
		{"1/4", 0.25, "1/4"},
		{"2/3", 2. / 3, "0.6666666666666666"},
		{"1/0", math.NaN(), ""},
		{"0/0", math.NaN(), ""},
		{"1/2/3", math.NaN(), ""},
		{"unlimited", math.Inf(1), "unlimited"},
		// Numbers that Validate rejects.
		{"0", 0, "0"},
		{"-3", -3, "-3"},
		{"", math.NaN(), ""},
		{"inf", math.NaN(), ""},
		{"NaN", math.NaN(), ""},
		{"1/s", math.NaN(), ""},
		{"1e999", math.NaN(), ""},
	} {
		rate := 7.0
		value := rateValue{&rate}
		switch err := value.Set(test.in); {
		case math.IsNaN(test.want):
			if err == nil || rate != 7 {
				t.Errorf("%q was taken as %v", test.in, rate)
			}
		case err != nil:
			t.Errorf("%q: %v", test.in, err)
		case rate != test.want || value.String() != test.out:
			t.Errorf("%q was taken as %v and is shown as %q, want %v and %q", test.in, rate, value, test.want, test.out)
		}
	}
}

func TestBytesFlag(t *testing.T) {
	for _, test := range []struct {
		in   string
		want int64 // -1: refused
		out  string
	}{
		{"1", 1, "1"},
		{"1Mi", 1 << 20, "1Mi"},
		{"1048576", 1 << 20, "1Mi"},
		{"2k", 2000, "2000"},
		{"0.5Ki", 512, "512"},
		{"", -1, ""},
		{"1MiB", -1, ""},
		{"1.5", -1, ""},
		{"100E", -1, ""},
	} {
		bytes := int64(7)
		value := bytesValue{&bytes}
		switch err := value.Set(test.in); {
		case test.want == -1:
			if err == nil || bytes != 7 {
				t.Errorf("%q was taken as %v", test.in, bytes)
			}
		case err != nil:
			t.Errorf("%q: %v", test.in, err)
		case bytes != test.want || value.String() != test.out:
			t.Errorf("%q was taken as %v and is shown as %q, want %v and %q", test.in, bytes, value, test.want, test.out)
		}
	}
}
