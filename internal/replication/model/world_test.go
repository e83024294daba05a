package model

import (
	"fmt"
	"strings"
)

// occurrence is one that clients post, in this order.
type occurrence struct {
	series uint8
	// client counts by itself, and has reached total; 0 is none. It posts the next total, which is
	// the next occurrence, when the one before is answered.
	client, total uint8
	// awaited: the client waits for the write, so that it is never answered 202.
	awaited bool
}

// bounds are the size of a world, and what may go wrong in it.
type bounds struct {
	processes   uint8
	alive       uint8 // at the beginning; the others may start later
	occurrences []occurrence
	left        budget
	// atOnce: a request is handled and answered, and a batch is acknowledged, in one step.
	atOnce bool
	// after is a history, with which the world begins.
	after string
}

// world is a protocol in bounds. It sets wrong when an action breaks a property.
type world struct {
	rules
	bounds
	wrong string
}

func newWorld(r rules, b bounds) *world { return &world{rules: r, bounds: b} }

// first returns the first state: process 0 leads.
func (w *world) first() (s state) {
	for p := range w.alive {
		s.processes[p].alive = true
	}
	s.left = w.left
	for _, a := range parse(w.after) {
		if !kinds[a.kind].can(w, &s, a) {
			panic(a.String() + " is not possible")
		}
		s, _ = w.apply(&s, a)
	}
	return s
}

// action is one step. The meaning of its arguments depends on the kind.
type action struct{ kind, a, b, c uint8 }

// kind is a kind of actions.
type kind struct {
	name string
	// domain has a letter for each argument: p is a process, s a series, o an occurrence, e an
	// entry.
	domain string
	// needed: it has to happen at some time if it can. Others are faults and choices.
	needed func(w *world, s *state, a action) bool
	can    func(w *world, s *state, a action) bool
	do     func(w *world, s *state, a action)
}

// next appends all actions that are possible in a state, and reports whether one is needed.
func (w *world) next(s *state, to []action) (_ []action, needed bool) {
	for k := range kinds {
		d := kinds[k].domain
		for a := range w.size(d, 0) {
			for b := range w.size(d, 1) {
				for c := range w.size(d, 2) {
					do := action{uint8(k), a, b, c}
					if kinds[k].can(w, s, do) {
						to = append(to, do)
						needed = needed || kinds[k].needed(w, s, do)
					}
				}
			}
		}
	}
	return to, needed
}

// size returns the number of values of an argument.
func (w *world) size(domain string, i int) uint8 {
	if i >= len(domain) {
		return 1
	}
	switch domain[i] {
	case 'p':
		return w.processes
	case 's':
		return w.series()
	case 'o':
		return uint8(len(w.occurrences))
	default:
		return maxEntries - 1
	}
}

// series returns the number of series.
func (w *world) series() (n uint8) {
	for _, o := range w.occurrences {
		n = max(n, o.series+1)
	}
	return n
}

// anonymous returns the occurrences of no client. A later report of a client may include others
// again.
func (w *world) anonymous() (out set) {
	for i, o := range w.occurrences {
		if o.client == 0 {
			out |= 1 << i
		}
	}
	return out
}

// apply returns the state after an action, and which property that breaks, "" if none.
func (w *world) apply(s *state, a action) (next state, wrong string) {
	next, w.wrong = *s, ""
	kinds[a.kind].do(w, &next, a)
	return next, w.wrong
}

func (w *world) breaks(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// String returns the action as in "batch L F".
func (a action) String() string {
	text, args := kinds[a.kind].name, []uint8{a.a, a.b, a.c}
	for i, d := range kinds[a.kind].domain {
		if d == 'p' {
			text += " " + processName(args[i])
		} else {
			text += fmt.Sprintf(" %c%d", d, args[i])
		}
	}
	return text
}

// processNames has L for the first leader.
const processNames = "LFG"

func processName(p uint8) string { return processNames[p : p+1] }

// parse returns the actions of a history, as String writes them, separated by commas.
func parse(history string) (out []action) {
	for text := range strings.SplitSeq(history, ",") {
		if fields := strings.Fields(text); len(fields) > 0 {
			out = append(out, parseAction(fields))
		}
	}
	return out
}

func parseAction(fields []string) action {
	for k := range kinds {
		n := len(fields) - len(kinds[k].domain)
		if n < 1 || strings.Join(fields[:n], " ") != kinds[k].name {
			continue
		}
		var args [3]uint8
		for i, f := range fields[n:] {
			if p := strings.Index(processNames, f); p >= 0 {
				args[i] = uint8(p)
			} else {
				args[i] = f[1] - '0'
			}
		}
		return action{uint8(k), args[0], args[1], args[2]}
	}
	panic(fmt.Sprint("no action ", fields))
}
