package main

import (
	"fmt"
	"slices"
)

// figures are of one thing, one for each turn.
type figures []float64

// of reads a figure from what came of each turn.
func of[T any](turns []T, figure func(T) float64) figures {
	var f figures
	for _, turn := range turns {
		f = append(f, figure(turn))
	}
	return f
}

// median is the one in the middle, or between the two that are.
func (f figures) median() float64 {
	sorted := slices.Sorted(slices.Values(f))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// over divides each by the other's of the same turn.
func (f figures) over(other figures) figures {
	ratios := make(figures, len(f))
	for i := range f {
		ratios[i] = f[i] / other[i]
	}
	return ratios
}

// write is the median, and the least and the greatest of several, each as a unit
// writes it.
func (f figures) write(u unit) string {
	if len(f) == 0 {
		return ""
	}
	if least, most := u(slices.Min(f)), u(slices.Max(f)); least != most {
		return fmt.Sprintf("%s (%s–%s)", u(f.median()), least, most)
	}
	return u(f[0])
}

// unit writes a figure.
type unit func(float64) string

func perSecond(v float64) string    { return fmt.Sprintf("%.0f/s", v) }
func percent(v float64) string      { return fmt.Sprintf("%.1f %%", 100*v) }
func finePercent(v float64) string  { return fmt.Sprintf("%.2f %%", 100*v) }
func seconds(v float64) string      { return fmt.Sprintf("%.1f s", v) }
func milliseconds(v float64) string { return fmt.Sprintf("%.2f ms", 1000*v) }
func number(v float64) string       { return fmt.Sprintf("%.0f", v) }
func ratio(v float64) string        { return fmt.Sprintf("%.2f", v) }
