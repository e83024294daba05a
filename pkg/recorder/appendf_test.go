package recorder

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func formatted(b []byte, format string, args []any) string {
	out, ok := appendf(b, format, args)
	if !ok {
		return "a panic"
	}
	return string(out)
}

// Formats of what formats are made of, in any order.
func TestAnyFormatIsThatOfFmt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"%", "%s", "%d", "%v", "%%", "s", "d", "v", "+", "-", "3", ".", "[1]", "*", "q", "€", " ", "\xff", "text"}
	values := []any{"a", "%d", "\xff€", 5, -6, int32(7), int64(8), uint(9), nil, 1.5, true, corev1.PodRunning, []string{"b"}}
	plain := 0
	for range 50_000 {
		var format string
		var args []any
		for range random.IntN(6) {
			format += pieces[random.IntN(len(pieces))]
		}
		for range random.IntN(4) {
			args = append(args, values[random.IntN(len(values))])
		}
		want := fmt.Sprintf(format, args...)
		if got := formatted(nil, format, args); got != want {
			t.Errorf("%q of %v: %q, want %q", format, args, got, want)
		}
		if _, ok := appendPlain(nil, format, args); ok && len(args) > 0 {
			plain++
		}
	}
	if plain < 100 {
		t.Errorf("only %d were plain", plain)
	}
}

func FuzzAppendf(f *testing.F) {
	f.Add("%s %d %v", "a", "b", 1, int32(2), int64(3), uint8(0o12))
	f.Add("%v%% %+d %[1]s %!", "%", "\xff", -1, int32(-2), int64(-3), uint8(0o70))
	f.Fuzz(func(t *testing.T, format, a, b string, c int, d int32, e int64, order uint8) {
		args := []any{a, c, b, d, e}
		// Any number of them, from any on.
		args = args[order&7%5:]
		args = args[:min(len(args), int(order>>3))]
		if got, want := formatted([]byte("kept "), format, args), "kept "+fmt.Sprintf(format, args...); got != want {
			t.Errorf("%q of %v: %q, want %q", format, args, got, want)
		}
	})
}
