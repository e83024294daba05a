package page

import (
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Figures and their units are not separated at the end of a line.
const space = "\u00a0"

// count formats a number exactly below a million, and with three digits above.
func count(v float64) string {
	switch {
	case math.IsNaN(v):
		return "unknown"
	case math.IsInf(v, 0):
		return "unlimited"
	case math.Abs(v) < 1e6 && v == math.Trunc(v):
		return thousands(strconv.FormatInt(int64(v), 10))
	case math.Abs(v) < 1000:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return scaled(v, 1000, "", "k", "M", "G", "T")
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// scaled formats with three digits at most, and the prefix of the unit.
func scaled(v, step float64, units ...string) string {
	i := 0
	for math.Abs(v) >= step-0.5 && i < len(units)-1 {
		v, i = v/step, i+1
	}
	digits := 0
	if i > 0 && math.Abs(v) < 99.95 {
		digits = 1
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if units[i] == "" {
		return s
	}
	return s + space + units[i]
}

func size(v float64) string { return scaled(v, 1024, "B", "KiB", "MiB", "GiB", "TiB") }

// rate formats what happens per second.
func rate(v float64) string {
	switch {
	case v == 0:
		return "0/s"
	case v > 0 && v < 0.05:
		return "<0.1/s"
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + "/s"
	}
	s := scaled(v, 1000, "", "k", "M", "G")
	return s + "/s"
}

// duration formats seconds.
func duration(v float64) string {
	whole := math.Round(v)
	switch {
	case math.IsNaN(v):
		return "unknown"
	case math.IsInf(v, 0):
		return "unlimited"
	case v < 0:
		return "-" + duration(-v)
	case v == 0:
		return "0" + space + "s"
	case v < 1:
		return strconv.FormatFloat(math.Max(1, math.Round(v*1000)), 'f', 0, 64) + space + "ms"
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + space + "s"
	case whole < 120:
		return strconv.FormatFloat(whole, 'f', 0, 64) + space + "s"
	case whole < 120*60:
		return strconv.Itoa(int(whole)/60) + space + "min"
	case whole < 48*3600:
		return strconv.Itoa(int(whole)/3600) + space + "h"
	}
	return count(math.Floor(whole/86400)) + space + "days"
}

// seconds formats a duration without parts of a second.
func seconds(d time.Duration) string {
	if s := math.Floor(d.Seconds()); s >= 10 {
		return duration(s)
	}
	return strconv.Itoa(int(d.Seconds())) + space + "s"
}

// stamp is a time as it is shown: how long ago, with the exact time in reach.
type stamp struct{ DateTime, Exact, Text string }

// at formats a time of the API relative to now. It is nil if the time is not known.
func at(now time.Time, v any) *stamp {
	var t time.Time
	switch v := v.(type) {
	case time.Time:
		t = v
	case metav1.Time:
		t = v.Time
	case metav1.MicroTime:
		t = v.Time
	case *metav1.Time:
		if v != nil {
			t = v.Time
		}
	case *metav1.MicroTime:
		if v != nil {
			t = v.Time
		}
	}
	if t.IsZero() {
		return nil
	}
	s := &stamp{DateTime: t.UTC().Format(time.RFC3339Nano), Exact: t.Local().Format("2006-01-02 15:04:05.000 MST")}
	switch age := now.Sub(t); {
	case age < -time.Second:
		s.Text = "in" + space + seconds(-age)
	case age < time.Second:
		s.Text = "now"
	default:
		s.Text = seconds(age) + space + "ago"
	}
	return s
}

// clock is the time of day on this machine, with the day if that is another one.
func clock(v any) *stamp {
	s := at(time.Time{}, v)
	if s != nil {
		t, _ := time.Parse(time.RFC3339Nano, s.DateTime)
		s.Text = t.Local().Format(time.TimeOnly)
		if day := t.Local().Format("Jan 2"); day != time.Now().Format("Jan 2") {
			s.Text = strings.ReplaceAll(day, " ", space) + ", " + s.Text
		}
	}
	return s
}

// lasting is how long a time is ago, as a duration.
func lasting(now time.Time, v any) *stamp {
	s := at(now, v)
	if s != nil {
		t, _ := time.Parse(time.RFC3339Nano, s.DateTime)
		s.Text = seconds(max(0, now.Sub(t)))
	}
	return s
}
