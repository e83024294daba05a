package main

import (
	"bytes"
	"fmt"
	"math"
)

// The plot has three panels side by side, each with a line for each situation.
const (
	panelWidth, panelHeight       = 250, 190
	marginLeft, marginTop, gap    = 50, 40, 70
	plotWidth                     = marginLeft + 3*panelWidth + 2*gap + 20
	plotHeight                    = marginTop + panelHeight + 80
	axisStyle, textStyle, tickLen = `stroke="#8a8f98"`, `fill="#57606a" font-size="12"`, 4
)

// colours tell situations apart in light and dark themes, and for the colour-blind (Okabe and Ito, 2008).
var colours = []string{"#0072b2", "#d55e00", "#009e73"}

type panel struct {
	title string
	value func(row) float64
}

var panels = []panel{
	{"cores", row.cores},
	{"memory, MiB", func(r row) float64 { return r.PeakBytes / (1 << 20) }},
	{"writes per second", func(r row) float64 { return r.Writes * r.Reported }},
}

// plot is an SVG of the rows with raised limits. Projected points are hollow.
func (r results) plot() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" role="img">`+"\n", plotWidth, plotHeight)
	b.WriteString("<title>Cores, memory and writes per second of eventd by nodes of the cluster</title>\n")
	for i, p := range panels {
		r.panel(&b, p, marginLeft+i*(panelWidth+gap))
	}
	for i, s := range situations {
		x := marginLeft + i*200
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="%s"/><text x="%d" y="%d" %s>%s</text>`+"\n",
			x, plotHeight-14, colours[i], x+10, plotHeight-10, textStyle, s.name)
	}
	fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="none" %s/><text x="%d" y="%d" %s>projected</text>`+"\n",
		marginLeft+600, plotHeight-14, axisStyle, marginLeft+610, plotHeight-10, textStyle)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (r results) panel(b *bytes.Buffer, p panel, left int) {
	most := 0.0
	for _, row := range r {
		if row.Limits == raised {
			most = max(most, p.value(row))
		}
	}
	top := ceilingOf(most)
	x := func(nodes int) float64 {
		return float64(left) + float64(nodes)/float64(sizes[len(sizes)-1])*panelWidth
	}
	y := func(v float64) float64 { return marginTop + panelHeight*(1-v/top) }
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>%s</text>`+"\n", left, marginTop-14, textStyle, p.title)
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" %s/>`+"\n", left, marginTop, marginTop+panelHeight, left+panelWidth, axisStyle)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(b, `<path d="M%d %.1fh-%d" %s/><text x="%d" y="%.1f" text-anchor="end" %s>%g</text>`+"\n",
			left, y(v), tickLen, axisStyle, left-7, y(v)+4, textStyle, v)
	}
	for _, nodes := range sizes {
		fmt.Fprintf(b, `<path d="M%.1f %dv%d" %s/><text x="%.1f" y="%d" text-anchor="middle" %s>%s</text>`+"\n",
			x(nodes), marginTop+panelHeight, tickLen, axisStyle, x(nodes), marginTop+panelHeight+18, textStyle, thousands(float64(nodes)))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" %s>nodes</text>`+"\n", left+panelWidth/2, marginTop+panelHeight+36, textStyle)
	for i, s := range situations {
		var line, points bytes.Buffer
		for _, nodes := range sizes {
			row, ok := r.of(nameOf(s.name, nodes, raised))
			if !ok {
				continue
			}
			command, fill := "L", colours[i]
			if line.Len() == 0 {
				command = "M"
			}
			if row.projected() {
				fill = "none"
			}
			fmt.Fprintf(&line, "%s%.1f %.1f", command, x(nodes), y(p.value(row)))
			fmt.Fprintf(&points, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s" stroke="%s"/>`+"\n", x(nodes), y(p.value(row)), fill, colours[i])
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n%s", line.String(), colours[i], points.String())
	}
}

// ceilingOf is the next number of the form 1, 2, 4 or 8 times a power of ten.
func ceilingOf(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 4, 8} {
		if factor*unit >= v {
			return factor * unit
		}
	}
	return 10 * unit
}
