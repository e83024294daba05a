package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/component-base/term"

	storedevents "github.com/eventd/eventd/test/stored"
)

// frame is what is shown at one moment.
type frame struct {
	elapsed  time.Duration
	counters counters
	events   []*corev1.Event
}

// screen shows frames.
type screen interface {
	interval() time.Duration
	draw(frame)
	close()
}

func newScreen(out io.Writer, title string) screen {
	if _, _, err := term.TerminalSize(out); err == nil {
		return openTerminal(out, title)
	}
	fmt.Fprintln(out, title)
	return &lines{out: out, shown: make(map[string]int64)}
}

// String is the equation that holds when nothing is moving between stages.
func (c counters) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "recorded %d =", c.recorded)
	for i, outcome := range outcomes {
		if n := c.settled[outcome]; i < 2 || n != 0 {
			fmt.Fprintf(&b, " %s %d +", outcome, n)
		}
	}
	fmt.Fprintf(&b, " pending %d", c.pending)
	return b.String()
}

// summary is eventd's counters, the leader, what is stored, and a line for each receiver.
func (f frame) summary() []string {
	leader := cmp.Or(strings.Join(f.counters.leaders, " and "), "nobody")
	lines := []string{
		fmt.Sprintf("%4s  eventd:    %s", f.elapsed.Round(time.Second), f.counters),
		fmt.Sprintf("      leader:    %s; %d requests passed on to it", leader, f.counters.passedOn),
		fmt.Sprintf("      apiserver: %d Events, counts add up to %d; %d requests", len(f.events), total(f.events), f.counters.requests),
	}
	for _, receiver := range slices.Sorted(maps.Keys(f.counters.receivers)) {
		a := f.counters.receivers[receiver]
		lines = append(lines, fmt.Sprintf("      %-10s %s; lag %s", receiver+":", a, a.lag.Round(100*time.Millisecond)))
	}
	return lines
}

// lines is the view without a terminal: a summary every few seconds, and the Events that
// changed most recently since the previous one.
type lines struct {
	out   io.Writer
	shown map[string]int64 // the count of an Event when it was last shown
}

// changedShown is how many changed Events follow a summary.
const changedShown = 3

func (l *lines) interval() time.Duration { return 2 * time.Second }

func (l *lines) draw(f frame) {
	fmt.Fprintln(l.out, strings.Join(f.summary(), "\n"))
	left := changedShown
	for _, event := range f.events {
		if n := storedevents.Count(event); left > 0 && l.shown[event.Name] != n {
			fmt.Fprintf(l.out, "      %s\n", row(event, time.Now()))
			l.shown[event.Name] = n
			left--
		}
	}
}

func (l *lines) close() {}

// terminal is the view on a terminal. It uses the alternate screen, so that the previous
// content comes back.
type terminal struct {
	out   io.Writer
	title string
	last  frame
}

// Control sequences of every terminal that has a screen (ECMA-48, and xterm's
// alternate screen).
const (
	enterScreen  = "\x1b[?1049h\x1b[?25l"
	leaveScreen  = "\x1b[?25h\x1b[?1049l"
	home         = "\x1b[H"
	clearToRight = "\x1b[K"
	clearBelow   = "\x1b[J"
)

func openTerminal(out io.Writer, title string) *terminal {
	fmt.Fprint(out, enterScreen)
	return &terminal{out: out, title: title}
}

func (t *terminal) interval() time.Duration { return 500 * time.Millisecond }

func (t *terminal) draw(f frame) {
	t.last = f
	columns, rows, err := term.TerminalSize(t.out)
	if err != nil || columns == 0 || rows == 0 {
		columns, rows = 80, 24
	}
	text := append(strings.Split(t.title, "\n"), f.summary()...)
	text = append(text, "", heading)
	now := time.Now()
	for _, event := range f.events {
		if len(text) == rows-1 {
			break
		}
		text = append(text, row(event, now))
	}
	// One write avoids flicker.
	var b strings.Builder
	b.WriteString(home)
	for _, line := range text {
		b.WriteString(cut(line, columns))
		b.WriteString(clearToRight + "\r\n")
	}
	b.WriteString(clearBelow)
	fmt.Fprint(t.out, b.String())
}

// close prints the last summary on the main screen.
func (t *terminal) close() {
	fmt.Fprint(t.out, leaveScreen)
	fmt.Fprintln(t.out, t.title)
	fmt.Fprintln(t.out, strings.Join(t.last.summary(), "\n"))
}

const rowFormat = "%-9s %5v  %-7s %-18s %-44s %s"

var heading = fmt.Sprintf(rowFormat, "LAST SEEN", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE")

func row(event *corev1.Event, now time.Time) string {
	object := strings.ToLower(event.InvolvedObject.Kind) + "/" + event.InvolvedObject.Name
	// Rounded down to 0 rather than below it: clocks and rounding differ.
	age := duration.HumanDuration(max(0, now.Sub(lastSeen(event))))
	return fmt.Sprintf(rowFormat, age, storedevents.Count(event), event.Type, event.Reason, object, event.Message)
}

// cut shortens a line to what fits.
func cut(line string, columns int) string {
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns-1]) + "…"
}
